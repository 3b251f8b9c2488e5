//! Errors of operations inside a root.

use std::path::PathBuf;

use nix::errno::Errno;

use super::{FileKind, IdMapError, Refusal};

/// Why an operation on a root, or the way into it, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the kernel, or the way to a file.
    #[error(transparent)]
    File(#[from] rooted_path::Error),
    /// A link in the path of something to be created is dangling.
    #[error(
        "{} leads through a symbolic link to {}, which does not exist: nothing is created through \
         it; remove the link from the image",
        path.display(),
        missing.display()
    )]
    Dangling {
        /// The path that was being created.
        path: PathBuf,
        /// The name that is missing behind the link.
        missing: PathBuf,
    },
    /// The mount point is a symbolic link.
    #[error(
        "{} is a symbolic link: nothing is mounted through a link (CVE-2024-0132); remove it from \
         the image",
        path.display()
    )]
    LinkAtLeaf {
        /// The path of the mount point.
        path: PathBuf,
    },
    /// The file is of the wrong kind.
    #[error("{} is {found}, and not {wanted}", path.display())]
    WrongKind {
        /// The path of what was found.
        path: PathBuf,
        found: FileKind,
        /// What it must be.
        wanted: FileKind,
    },
    /// Something else has the name of a file to be created. The caller may
    /// ignore this.
    #[error("{} exists already: it is {found}", path.display())]
    Occupied {
        /// The path of what was found.
        path: PathBuf,
        found: FileKind,
    },
    /// The file system is mounted read-only.
    #[error(
        "cannot create {}: the file system is read-only; use a writable root, or mount a tmpfs \
         at the directory",
        path.display()
    )]
    ReadOnly {
        /// The path that was to be created.
        path: PathBuf,
    },
    /// The directory must not be written to.
    #[error(
        "cannot create or change {}: {why}; boathook writes to nothing else of a container",
        path.display()
    )]
    NotWritable {
        /// The path of the file to be created or changed.
        path: PathBuf,
        why: Refusal,
    },
    /// The rootfs path leads to another directory than it did on the host.
    #[error(
        "{} is not the same directory in the container's mount namespace as on the host: it was \
         replaced while the container was being created, or something is mounted over it",
        path.display()
    )]
    RootChanged {
        /// The path of the container's root.
        path: PathBuf,
    },
    /// A directory exceeds its limit of entries.
    #[error("{} has more than {cap} entries", path.display())]
    TooManyEntries { path: PathBuf, cap: usize },
    /// A file exceeds its size limit.
    #[error("{} is larger than {cap} bytes", path.display())]
    TooLarge {
        path: PathBuf,
        /// The limit in bytes.
        cap: usize,
    },
    /// `/proc` is not a proc file system.
    #[error("/proc is not a proc file system: mount one")]
    NotProc,
    /// The process that the engine passed has no mount namespace of its own.
    #[error(
        "process {pid} is in this process's own mount namespace: mounts for the container would \
         be the host's"
    )]
    SameNamespace {
        /// The process, as the engine passed it.
        pid: i32,
    },
    /// The namespace cannot be entered.
    #[error(
        "cannot enter the mount namespace of process {pid}: {errno} (this needs CAP_SYS_ADMIN and \
         CAP_SYS_CHROOT, and a process of one thread)"
    )]
    Enter {
        /// The process whose namespace it is.
        pid: i32,
        errno: Errno,
    },
    /// An id map of the container cannot be used.
    #[error("{file} of process {pid}: {reason}")]
    IdMap {
        /// The process whose map it is.
        pid: i32,
        /// `uid_map` or `gid_map`.
        file: &'static str,
        /// What is wrong with it.
        reason: IdMapError,
    },
    /// The container's root user cannot be assumed for creating files.
    #[error("cannot create files as the container's root, {uid}:{gid} on the host: {reason}")]
    Creator {
        /// The container's root user, as seen from the host.
        uid: u32,
        /// The container's root group, as seen from the host.
        gid: u32,
        /// What failed.
        reason: String,
    },
}

impl Error {
    /// The error of a call that the kernel refused.
    pub(super) fn system(action: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        rooted_path::Error::system(action, path, errno).into()
    }

    /// The error of a failed call that creates something.
    pub(super) fn creating(action: &'static str, path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::EROFS => Self::ReadOnly { path },
            errno => Self::system(action, path, errno),
        }
    }
}
