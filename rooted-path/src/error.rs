//! Why a path does not lead to a file.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a path could not be resolved. Paths are those that were asked for, as seen
/// from the root.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {errno}", path.display())]
    System {
        /// The operation, as text before a path.
        action: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    #[error("{} is not a usable path: {reason}", path.display())]
    Path {
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A symbolic link of `/proc` that leads out of the root, or more links
    /// than the kernel follows (40).
    #[error(
        "{} leads through too many symbolic links, or through one of /proc that is never followed",
        path.display()
    )]
    Links { path: PathBuf },
    #[error(
        "{} leads through a symbolic link that was not there before: it was replaced",
        path.display()
    )]
    Link { path: PathBuf },
}

impl Error {
    /// The error of a call that the kernel refused.
    pub fn system(action: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        Self::System {
            action,
            path: path.into(),
            errno,
        }
    }

    pub(crate) fn links(path: &Path) -> Self {
        Self::Links { path: path.into() }
    }

    /// What the kernel answers in such a case.
    pub fn errno(&self) -> Errno {
        match self {
            Self::System { errno, .. } => *errno,
            Self::Path { .. } => Errno::EINVAL,
            Self::Links { .. } | Self::Link { .. } => Errno::ELOOP,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        error.errno().into()
    }
}
