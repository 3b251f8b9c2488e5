//! What can go wrong, and what the reader should do about it.

use std::io;
use std::path::{Path, PathBuf};

/// A failure while reading, planning or changing an engine's configuration.
///
/// Each message names the file, the line where one is known, and a way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {path}: {cause}{}", advice(cause))]
    Io {
        /// The operation, as a verb: "read", "write", "rename".
        action: &'static str,
        /// The file, as seen from this process.
        path: PathBuf,
        /// The operating system's answer. It is part of the message, so it is no
        /// `source`, which would print it a second time.
        cause: io::Error,
    },
    /// A file is larger than any engine's configuration is.
    #[error("{path} is larger than {limit} bytes; this is not an engine's configuration")]
    TooLarge {
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is not a regular file.
    #[error("{path} is not a regular file; move it away and try again")]
    NotAFile { path: PathBuf },
    /// A file is not UTF-8, which TOML and JSON demand.
    #[error("{path} is not UTF-8 text; repair it and try again")]
    NotUtf8 { path: PathBuf },
    /// Others than root could change what is to be written.
    #[error(
        "{path}: {problem}, and so could replace what root runs from there; \
         make it root's own and writable by root alone (chown root:root, chmod go-w)"
    )]
    Untrusted {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// More symbolic links in a path than the kernel would follow.
    #[error("too many symbolic links in {path}; remove the loop")]
    LinkLoop { path: PathBuf },
    /// A file does not parse. It is left as it is.
    #[error("{path}:{line}: {message}; repair the file (it was not changed) and try again")]
    Syntax {
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The parser's words.
        message: String,
    },
    /// A file is valid, but written in a way that cannot be extended in place.
    #[error("{path}:{line}: {problem}; {advice}")]
    Unsupported {
        path: PathBuf,
        line: usize,
        /// What is in the way.
        problem: String,
        advice: String,
    },
    /// containerd's CRI plugin is switched off: no Kubernetes pod runs on it.
    #[error(
        "{path}:{line}: the CRI plugin is disabled, so no pod runs on this containerd; \
         remove it from disabled_plugins, or leave this engine out"
    )]
    CriDisabled { path: PathBuf, line: usize },
    /// Someone else already uses our name.
    #[error(
        "{path}:{line}: there is a runtime named \"boathook\" that this program did not \
         install; remove or rename it and try again"
    )]
    NameTaken { path: PathBuf, line: usize },
    /// A file is no longer what the plan was made from.
    #[error("{path} changed after the plan was made; nothing was written to it, plan again")]
    Changed { path: PathBuf },
    /// The engine's name is not known.
    #[error("unknown engine \"{name}\"; one of {known}")]
    UnknownEngine {
        name: String,
        /// The names that would do.
        known: String,
    },
    /// A reloaded engine still has its old configuration.
    #[error(
        "{engine} was reloaded but still has its old configuration after {seconds} s; \
         restart it, and see its log"
    )]
    NotReloaded {
        engine: crate::facts::Engine,
        /// How long it was given.
        seconds: u64,
    },
    /// A runtime is named where an engine is expected.
    #[error(
        "{name} is a runtime, not an engine, and has no configuration: name the engine that \
         calls it, or use boathook-runtime in place of {name}"
    )]
    Runtime { name: String },
    /// A record of an earlier installation cannot be understood.
    #[error(
        "the installation record {path} is not valid: {message}; restore it from a backup, or remove it to undo without it"
    )]
    Record { path: PathBuf, message: String },
    /// The base OCI spec given for `base_runtime_spec` cannot be extended.
    #[error("the base OCI spec is not usable: {message}; make one with \"ctr oci spec\"")]
    BaseSpec { message: String },
    /// A change failed, and so did taking back the changes before it.
    #[error("{first}; and undoing the earlier changes failed too: {second}")]
    Rollback {
        first: Box<Error>,
        second: Box<Error>,
    },
}

impl Error {
    /// Makes [`Error::Io`] of an operating system's answer, for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |cause| Self::Io {
            action,
            path,
            cause,
        }
    }
}

/// What to do about the failures that installers meet most.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; mount the host's file system writable",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room and try again",
        io::ErrorKind::PermissionDenied => "; run as root",
        io::ErrorKind::CrossesDevices => {
            "; mount the directory above it as well, so that a new file can be renamed into place"
        }
        _ => "",
    }
}
