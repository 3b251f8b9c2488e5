//! The errors of this crate. Each message tells the administrator what to do about the error.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// An error while an engine's configuration is read, planned or changed. Each message names the
/// file, the line if it is known, and what the administrator can do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a file failed.
    #[error("cannot {action} {path}: {cause}{}", format_advice(cause))]
    Io {
        /// The failed operation, as a verb such as "read", "write" or "rename".
        action: &'static str,
        /// The path of the file, as this process sees it.
        path: PathBuf,
        /// The error of the system call. It is already part of the message. So it is not marked as
        /// the source, which would be printed a second time.
        cause: io::Error,
    },
    /// A line in a configuration file makes the change impossible. The file is not changed.
    #[error("{path}:{line}: {problem}")]
    Line {
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// The problem, and what to do about it.
        problem: String,
    },
    /// The configuration disables the CRI plugin of containerd. So this containerd runs no
    /// Kubernetes pods.
    #[error(
        "{path}:{line}: the CRI plugin is disabled, so no pod runs on this containerd; \
         remove it from disabled_plugins, or leave this engine out"
    )]
    CriDisabled { path: PathBuf, line: usize },
    /// A command of systemctl failed.
    #[error("{command} failed: {message}")]
    Systemctl {
        command: String,
        /// The error output of systemctl, in one line.
        message: String,
    },
    /// An error of another kind. The text says what to do about it.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Returns a function that turns an [`io::Error`] into an [`Error::Io`], for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |cause| Self::Io {
            action,
            path,
            cause,
        }
    }

    /// Returns the kind of the I/O error, or `None` for all other errors.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { cause, .. } => Some(cause.kind()),
            _ => None,
        }
    }

    pub(crate) fn new_at_line(path: &Path, line: usize, problem: impl Into<String>) -> Self {
        Self::Line {
            path: path.into(),
            line,
            problem: problem.into(),
        }
    }

    /// Returns the error for a configuration file that does not parse. Such a file is not changed.
    pub(crate) fn new_syntax_error(path: &Path, line: usize, message: &str) -> Self {
        let advice = "repair the file (it was not changed) and try again";
        Self::new_at_line(path, line, format!("{message}; {advice}"))
    }

    /// Returns the error for a runtime that has one of Boathook's names but does not belong to
    /// Boathook.
    pub(crate) fn new_name_conflict(path: &Path, line: usize, name: &str) -> Self {
        let problem = format!(
            "there is a runtime named \"{name}\" that this program did not install; remove or \
             rename it and try again"
        );
        Self::new_at_line(path, line, problem)
    }

    /// Returns the error for a path at which there is something else than a regular file.
    pub(crate) fn new_not_regular_file(path: &Path) -> Self {
        Self::Other(format!(
            "{} is not a regular file; move it away and try again",
            path.display()
        ))
    }
}

/// Returns what an administrator can do about an I/O error that is common in installations. For all
/// other errors the text is empty.
fn format_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; mount the host's file system writable",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room and try again",
        io::ErrorKind::PermissionDenied if error.raw_os_error() == Some(Errno::EPERM as i32) => {
            "; run as root, and see whether the file or its directory is immutable (lsattr)"
        }
        io::ErrorKind::PermissionDenied => "; run as root",
        io::ErrorKind::CrossesDevices => {
            "; mount the directory above it as well, so that a new file can be renamed into place"
        }
        _ => "",
    }
}
