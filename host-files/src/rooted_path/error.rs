//! Declares the errors that can occur while a path is resolved below a root directory.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a path could not be resolved. `path` is the path that the caller gave, relative
/// to the root directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {errno}", path.display())]
    System {
        /// The operation that failed, as a verb for the message, such as "open".
        action: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    #[error("{} is not a usable path: {reason}", path.display())]
    Path {
        path: PathBuf,
        /// The reason why the path is not usable, as text for the message, such as "it is empty".
        reason: &'static str,
    },
    /// The path leads through a symbolic link of `/proc`, or through more than
    /// [`MAX_LINKS`](crate::rooted_path::MAX_LINKS) symbolic links.
    #[error(
        "{} leads through too many symbolic links, or through one of /proc that is never followed",
        path.display()
    )]
    TooManyLinks { path: PathBuf },
    /// The path leads through a symbolic link where the caller expects none. For example, another
    /// process has replaced a directory by a link.
    #[error(
        "{} leads through a symbolic link that was not there before: it was replaced",
        path.display()
    )]
    UnexpectedLink { path: PathBuf },
}

impl Error {
    /// Returns the error of a failed system call. `action` is a verb for the message, such as
    /// "open".
    pub fn system(action: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        Self::System {
            action,
            path: path.into(),
            errno,
        }
    }

    pub(crate) fn too_many_links(path: &Path) -> Self {
        Self::TooManyLinks { path: path.into() }
    }

    /// Returns the error number of the failed system call. If no system call failed, returns the
    /// error number with which the kernel would refuse the path.
    pub fn errno(&self) -> Errno {
        match self {
            Self::System { errno, .. } => *errno,
            Self::Path { .. } => Errno::EINVAL,
            Self::TooManyLinks { .. } | Self::UnexpectedLink { .. } => Errno::ELOOP,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        error.errno().into()
    }
}
