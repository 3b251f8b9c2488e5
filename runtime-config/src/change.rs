//! An atomic change of one file or directory of the host.

use std::fmt;
use std::path::{Path, PathBuf};

use similar::TextDiff;

/// A change of one file or directory, which is made completely or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Makes a directory with mode 0755.
    MakeDir { path: PathBuf },
    /// Replaces or creates a file atomically. Fails if the text of the file is no longer
    /// `old_text`.
    Write {
        path: PathBuf,
        /// The text that the file must have before the change. `None` means that the file must not
        /// exist.
        old_text: Option<String>,
        new_text: String,
        /// The mode of a new file. An existing file keeps its mode and owner.
        mode: u32,
    },
    /// Removes a file. Fails if the text of the file is no longer `old_text`.
    Remove {
        path: PathBuf,
        old_text: String,
        /// The mode of the file. If the removal is undone, the file is created with this mode.
        mode: u32,
    },
    /// Removes a directory that an installation made. The directory is kept if it contains files.
    RemoveDir { path: PathBuf },
}

impl Change {
    pub fn path(&self) -> &Path {
        match self {
            Self::MakeDir { path }
            | Self::Write { path, .. }
            | Self::Remove { path, .. }
            | Self::RemoveDir { path } => path,
        }
    }

    /// Returns the change that turns the text of a file from `old_text` into `new_text`. `None` as
    /// a text means that the file does not exist. Returns `None` if the texts are equal. `mode` is
    /// the mode of a new file.
    pub fn from_texts(
        path: &Path,
        old_text: Option<&str>,
        new_text: Option<&str>,
        mode: u32,
    ) -> Option<Self> {
        let path = path.into();
        let old_text = old_text.map(str::to_owned);
        match (old_text, new_text) {
            (old_text, Some(new_text)) if old_text.as_deref() != Some(new_text) => {
                Some(Self::Write {
                    path,
                    old_text,
                    new_text: new_text.to_owned(),
                    mode,
                })
            }
            (Some(old_text), None) => Some(Self::Remove {
                path,
                old_text,
                mode,
            }),
            _ => None,
        }
    }

    /// Returns the change that undoes this one. The inverse of a removal creates the file with its
    /// old text.
    #[must_use]
    pub fn inverse(&self) -> Self {
        match self.clone() {
            Self::MakeDir { path } => Self::RemoveDir { path },
            Self::RemoveDir { path } => Self::MakeDir { path },
            Self::Write {
                path,
                old_text: None,
                new_text,
                mode,
            } => Self::Remove {
                path,
                old_text: new_text,
                mode,
            },
            Self::Write {
                path,
                old_text: Some(old_text),
                new_text,
                mode,
            } => Self::Write {
                path,
                old_text: Some(new_text),
                new_text: old_text,
                mode,
            },
            Self::Remove {
                path,
                old_text,
                mode,
            } => Self::Write {
                path,
                old_text: None,
                new_text: old_text,
                mode,
            },
        }
    }
}

/// Formats a change as text: for a file a unified diff, for a directory one line.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path().display().to_string();
        let (old_text, new_text) = match self {
            Self::MakeDir { .. } => return writeln!(f, "mkdir {name}"),
            Self::RemoveDir { .. } => return writeln!(f, "rmdir {name}"),
            Self::Write {
                old_text, new_text, ..
            } => (old_text.as_deref(), Some(new_text.as_str())),
            Self::Remove { old_text, .. } => (Some(old_text.as_str()), None),
        };
        let label = |text: Option<&str>| text.map_or("/dev/null", |_| &name).to_owned();
        TextDiff::from_lines(old_text.unwrap_or_default(), new_text.unwrap_or_default())
            .unified_diff()
            .header(&label(old_text), &label(new_text))
            .fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reads_as_a_diff() {
        let change = Change::Write {
            path: "/etc/x.toml".into(),
            old_text: Some("a = 1\n".into()),
            new_text: "a = 1\nb = 2\n".into(),
            mode: 0o644,
        };
        let diff = "--- /etc/x.toml\n+++ /etc/x.toml\n@@ -1 +1,2 @@\n a = 1\n+b = 2\n";
        assert_eq!(change.to_string(), diff);
        assert_eq!(change.inverse().inverse(), change);
    }
}
