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
        /// The operation as a verb, such as "open", for the message.
        action: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    #[error("{} is not a usable path: {reason}", path.display())]
    Path {
        path: PathBuf,
        /// The reason why the path is not usable, as a sentence about the path.
        reason: &'static str,
    },
    /// The path leads through a symbolic link of `/proc`, or through more symbolic links than the
    /// kernel follows (40).
    #[error(
        "{} leads through too many symbolic links, or through one of /proc that is never followed",
        path.display()
    )]
    Links { path: PathBuf },
    #[error(
        "{} leads through a symbolic link that was not there before: it was replaced",
        path.display()
    )]
    /// A path that must not have symbolic links leads through one.
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

    /// Returns the error number of the failed system call, or the one that the kernel returns for
    /// a path with the same fault.
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
