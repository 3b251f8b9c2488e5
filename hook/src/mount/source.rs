//! A file or directory of the host that is ready to be mounted.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Attributes, Error, HostFile, Result, SyscallSupport, detached};
use crate::container::{FileKind, Identity};

/// Whether the mounts inside a source directory are mounted together with the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountDepth {
    /// The mounts inside the source are not mounted (`bind`).
    Single,
    /// All mounts inside the source are mounted with it, and get the same restrictions (`rbind`).
    Recursive,
}

/// A file or directory of the host that was opened and checked. It can be mounted in the mount
/// namespace of a container.
#[derive(Debug)]
pub struct Source {
    pub(super) handle: SourceHandle,
    pub(super) path: PathBuf,
    kind: FileKind,
    identity: Identity,
}

/// A reference to a source file that is also valid in another mount namespace.
#[derive(Debug)]
pub(super) enum SourceHandle {
    /// A detached mount of the file.
    DetachedMount(OwnedFd),
    /// The path of the root directory in which the file is opened again. This is used on kernels
    /// without detached mounts.
    PathInRoot {
        root_path: Rc<Path>,
        attributes: Attributes,
        depth: MountDepth,
    },
}

impl Source {
    /// Prepares `file` so that it can be mounted in a container. This process must still be in the
    /// host's mount namespace.
    pub fn new(
        file: &HostFile,
        attributes: Attributes,
        depth: MountDepth,
        syscall_support: SyscallSupport,
    ) -> Result<Self> {
        let handle = if syscall_support.supports_detached_mounts() {
            SourceHandle::DetachedMount(detached::clone_mount(
                file,
                attributes,
                depth,
                syscall_support,
            )?)
        } else if syscall_support.has_private_namespace {
            let path = file.path().to_owned();
            return Err(Error::TooOld { path });
        } else {
            SourceHandle::PathInRoot {
                root_path: Rc::clone(file.root_path()),
                attributes,
                depth,
            }
        };
        Ok(Self {
            handle,
            path: file.path().to_owned(),
            kind: file.kind(),
            identity: file.identity(),
        })
    }

    /// Returns the kind of the file. It determines which kind of target is needed.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }
}
