//! The errors of operations on a container's files, with advice for users.

use std::path::PathBuf;

use host_files::rooted_path;
use nix::errno::Errno;

use super::{FileKind, IdMapError, NotWritableReason};

/// An error of an operation on a container's root file system, or an error that occurred when this
/// process entered a container's mount namespace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] rooted_path::Error),
    #[error(
        "{} leads through a symbolic link to {}, which does not exist: nothing is created through \
         it; remove the link from the image",
        path.display(),
        missing_path.display()
    )]
    DanglingSymlink {
        path: PathBuf,
        missing_path: PathBuf,
    },
    #[error(
        "{} is a symbolic link: nothing is mounted through a link (CVE-2024-0132); remove it from \
         the image",
        path.display()
    )]
    SymlinkAtMountPoint { path: PathBuf },
    #[error("{} is {found_kind}, and not {expected_kind}", path.display())]
    WrongKind {
        path: PathBuf,
        found_kind: FileKind,
        expected_kind: FileKind,
    },
    /// A file cannot be created, because another file already has its name.
    #[error("{} exists already: it is {found_kind}", path.display())]
    AlreadyExists { path: PathBuf, found_kind: FileKind },
    #[error(
        "cannot create {}: the file system is read-only; use a writable root, or mount a tmpfs \
         at the directory",
        path.display()
    )]
    ReadOnly { path: PathBuf },
    #[error(
        "cannot create or change {}: {reason}; boathook writes to nothing else of a container",
        path.display()
    )]
    NotWritable {
        path: PathBuf,
        reason: NotWritableReason,
    },
    #[error(
        "{} is not the same directory in the container's mount namespace as on the host: it was \
         replaced while the container was being created, or something is mounted over it",
        path.display()
    )]
    RootChanged { path: PathBuf },
    #[error(
        "process {pid} is not the one that the container was started with: the container has ended"
    )]
    ProcessIdReused { pid: i32 },
    #[error(
        "the container's first process, {pid}, has another root than {}: a container that changes \
         its root cannot be changed",
        path.display()
    )]
    UnexpectedProcessRoot { pid: i32, path: PathBuf },
    #[error("{} has more than {max_entries} entries", path.display())]
    TooManyEntries { path: PathBuf, max_entries: usize },
    #[error("{} is larger than {max_bytes} bytes", path.display())]
    TooLarge { path: PathBuf, max_bytes: usize },
    #[error("/proc is not a proc file system: mount one")]
    ProcfsNotMounted,
    #[error(
        "process {pid} is in this process's own mount namespace: mounts for the container would \
         be the host's"
    )]
    SameNamespace { pid: i32 },
    #[error(
        "cannot enter the mount namespace of process {pid}: {errno} (this needs CAP_SYS_ADMIN and \
         CAP_SYS_CHROOT, and a process of one thread)"
    )]
    Enter { pid: i32, errno: Errno },
    #[error("{file} of process {pid}: {reason}")]
    IdMap {
        pid: i32,
        /// The name of the invalid file in `/proc/PID`: `uid_map` or `gid_map`.
        file: &'static str,
        reason: IdMapError,
    },
    #[error("cannot create files as the container's root, {uid}:{gid} on the host: {reason}")]
    FileOwnerNotSet { uid: u32, gid: u32, reason: String },
}

impl Error {
    /// Returns the error for a system call that failed on the file `path`. `action` is the verb of
    /// the message `cannot open PATH`, such as `open`.
    pub(super) fn system(action: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        rooted_path::Error::system(action, path, errno).into()
    }

    /// Reports whether the error means that a path leads to no directory: to a file of another
    /// kind, or to a broken symbolic link. A caller can then treat the directory as missing.
    pub fn is_not_directory_error(&self) -> bool {
        match self {
            Self::File(error) => matches!(error.errno(), Errno::ELOOP | Errno::ENOTDIR),
            Self::DanglingSymlink { .. } | Self::WrongKind { .. } => true,
            _ => false,
        }
    }

    /// Reports whether the container cannot have a file at a path: another file is there, a
    /// directory of the path is a file, or the path is on a mount such as the host's `/nix/store`,
    /// to which the hook must not write.
    pub fn is_path_unusable(&self) -> bool {
        match self {
            Self::WrongKind { .. }
            | Self::AlreadyExists { .. }
            | Self::DanglingSymlink { .. }
            | Self::ReadOnly { .. }
            | Self::NotWritable { .. } => true,
            error => error.has_non_directory_component(),
        }
    }

    /// Reports whether the kernel denied this process a system call on a file, for example because
    /// it lacks CAP_MKNOD or because of a security module.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::File(error) if matches!(error.errno(), Errno::EPERM | Errno::EACCES))
    }

    /// Reports whether a directory of the path is a file, as in `/etc/passwd/x`, so that nothing
    /// can be at the path.
    pub fn has_non_directory_component(&self) -> bool {
        matches!(self, Self::File(error) if error.errno() == Errno::ENOTDIR)
    }

    /// Returns the error for a system call that failed to create the file `path`. If the file
    /// system is read-only, the error contains advice.
    pub(super) fn from_creation(action: &'static str, path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::EROFS => Self::ReadOnly { path },
            errno => Self::system(action, path, errno),
        }
    }
}
