//! The notes of an injection plan. They say what was left out or done differently, and are no
//! errors.

use std::fmt;

use serde::{Serialize, Serializer};

/// The maximum number of paths in a shortened note. If there are more, the note has only their
/// number.
const MAX_LISTED_PATHS: usize = 3;

/// A one-line message for the reader of a plan. It says what was left out or done differently, and
/// why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    Text(String),
    /// The optional files of a class that the host does not have.
    MissingFiles {
        /// The class, and the device if the files are of one device.
        owner: String,
        paths: Vec<String>,
    },
}

impl Note {
    /// Returns the text of the note. If the note lists many missing files, their number replaces the
    /// list: every host misses many of them, because a class file lists the files of all versions of
    /// a driver.
    pub fn to_short_text(&self) -> String {
        match self {
            Note::MissingFiles { owner, paths } if paths.len() > MAX_LISTED_PATHS => {
                let count = paths.len();
                format!("{owner}: {count} optional files are not on this host (-v names them)")
            }
            note => note.to_string(),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Text(text) => f.write_str(text),
            Note::MissingFiles { owner, paths } => {
                write!(
                    f,
                    "{owner}: optional and not on this host: {}",
                    paths.join(", ")
                )
            }
        }
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_optional_files_are_counted() {
        let paths = ["/a", "/b", "/c", "/d"].map(str::to_owned);
        let missing = |paths: &[String]| Note::MissingFiles {
            owner: "gpu".to_owned(),
            paths: paths.to_vec(),
        };
        let few = missing(&paths[..3]);
        assert_eq!(
            few.to_string(),
            "gpu: optional and not on this host: /a, /b, /c"
        );
        assert_eq!(few.to_short_text(), few.to_string());
        let short = "gpu: 4 optional files are not on this host (-v names them)";
        assert_eq!(missing(&paths).to_short_text(), short);
        // The words of another note, and a path with a separator, decide nothing.
        let other = Note::Text(missing(&paths).to_string());
        assert_eq!(other.to_short_text(), other.to_string());
        let one = missing(&["/a, /b, /c, /d".to_owned()]);
        assert_eq!(one.to_short_text(), one.to_string());
    }
}
