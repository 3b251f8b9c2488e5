//! One atomic change of the host's file system.

use std::fmt;
use std::path::{Path, PathBuf};

use similar::TextDiff;

/// A change of one file or directory. It is made completely or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Make a directory with mode 0755.
    MakeDir { path: PathBuf },
    /// Replace or create a file atomically, if its content is still `before`.
    Write {
        path: PathBuf,
        /// The text that the file must have before the change. `None` means that the file must not
        /// exist.
        before: Option<String>,
        after: String,
        /// The mode of a new file. An existing file keeps its mode and owner.
        mode: u32,
    },
    /// Remove a file, if its content is still `before`.
    Remove {
        path: PathBuf,
        before: String,
        /// The mode of the file, with which an undo creates it again.
        mode: u32,
    },
    /// Remove a directory that an installation made, unless it contains files.
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

    /// Returns the change of a file from the text `before` to `after`, where `None` means that the
    /// file does not exist. Returns `None` if the texts are equal. `mode` is the mode of a new file.
    pub fn rewrite(
        path: &Path,
        before: Option<&str>,
        after: Option<&str>,
        mode: u32,
    ) -> Option<Self> {
        let path = path.into();
        let before = before.map(str::to_owned);
        match (before, after) {
            (before, Some(after)) if before.as_deref() != Some(after) => Some(Self::Write {
                path,
                before,
                after: after.to_owned(),
                mode,
            }),
            (Some(before), None) => Some(Self::Remove { path, before, mode }),
            _ => None,
        }
    }

    /// Returns the change that undoes this one.
    #[must_use]
    pub fn inverse(&self) -> Self {
        match self.clone() {
            Self::MakeDir { path } => Self::RemoveDir { path },
            Self::RemoveDir { path } => Self::MakeDir { path },
            Self::Write {
                path,
                before: None,
                after,
                mode,
            } => Self::Remove {
                path,
                before: after,
                mode,
            },
            Self::Write {
                path,
                before: Some(before),
                after,
                mode,
            } => Self::Write {
                path,
                before: Some(after),
                after: before,
                mode,
            },
            Self::Remove { path, before, mode } => Self::Write {
                path,
                before: None,
                after: before,
                mode,
            },
        }
    }
}

/// Formats a change of a file as a unified diff, and a change of a directory as one line.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path().display().to_string();
        let (before, after) = match self {
            Self::MakeDir { .. } => return writeln!(f, "mkdir {name}"),
            Self::RemoveDir { .. } => return writeln!(f, "rmdir {name}"),
            Self::Write { before, after, .. } => (before.as_deref(), Some(after.as_str())),
            Self::Remove { before, .. } => (Some(before.as_str()), None),
        };
        let label = |text: Option<&str>| text.map_or("/dev/null", |_| &name).to_owned();
        TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default())
            .unified_diff()
            .header(&label(before), &label(after))
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
            before: Some("a = 1\n".into()),
            after: "a = 1\nb = 2\n".into(),
            mode: 0o644,
        };
        let diff = "--- /etc/x.toml\n+++ /etc/x.toml\n@@ -1 +1,2 @@\n a = 1\n+b = 2\n";
        assert_eq!(change.to_string(), diff);
        assert_eq!(change.inverse().inverse(), change);
    }
}
