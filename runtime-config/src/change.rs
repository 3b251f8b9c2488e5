//! One change of the host's file system, small enough to be done or not done.

use std::fmt;
use std::path::{Path, PathBuf};

use similar::TextDiff;

/// A change that is either made whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Make a directory, mode 0755, if it is not there.
    MakeDir { path: PathBuf },
    /// Write a file in one go, if it still is what it was.
    Write {
        path: PathBuf,
        /// What it holds now; `None`: it does not exist.
        before: Option<String>,
        after: String,
        /// The mode of a new file; one that exists keeps its own, and its owner.
        mode: u32,
    },
    /// Remove a file, if it still is what it was.
    Remove {
        path: PathBuf,
        before: String,
        /// Its mode, for taking the removal back.
        mode: u32,
    },
    /// Remove a directory that was made, unless someone put a file there.
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

    /// What makes the file hold `after`, or go; `None`: there is nothing to do. `mode` is
    /// that of a new file.
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

    /// The change that takes this one back.
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

/// A unified diff for a file, one line for a directory.
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
