//! The errors of path resolution.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a path could not be resolved. The path in an error is the path that the
/// caller passed, relative to the root directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {errno}", path.display())]
    System {
        /// The operation, as text before the path.
        action: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    #[error("{} is not a usable path: {reason}", path.display())]
    Path {
        path: PathBuf,
        /// The fault of the path, as text.
        reason: &'static str,
    },
    /// The path has a symbolic link of `/proc` that leads out of the root, or more symbolic
    /// links than the kernel follows (40).
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
    /// Returns the error of a failed system call.
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

    /// Returns the error number that the kernel returns for such a path.
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
