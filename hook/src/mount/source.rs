//! Prepares a file or directory of the host, so that it can be mounted in a container.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Attributes, Error, HostFile, Result, SyscallSupport, detached};
use crate::container::{FileKind, Identity};

/// Whether a mount of a directory includes the file systems that are mounted below this directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountDepth {
    /// The mounts below the source are left out (`bind`).
    Single,
    /// All mounts below the source are included, and get the same attributes (`rbind`).
    Recursive,
}

/// A file or directory of the host that was opened and checked. It can be mounted in the mount
/// namespace of a container.
#[derive(Debug)]
pub struct MountSource {
    pub(super) handle: SourceHandle,
    pub(super) path: PathBuf,
    kind: FileKind,
    identity: Identity,
}

/// A reference to a file of the host. It stays valid when this process enters the container's mount
/// namespace.
#[derive(Debug)]
pub(super) enum SourceHandle {
    /// A detached mount of the file.
    DetachedMount(OwnedFd),
    /// The data for a second opening of the file, in the container's mount namespace. `root_path`
    /// is the directory below which the file is. This variant is used on kernels without detached
    /// mounts.
    PathInRoot {
        root_path: Rc<Path>,
        attributes: Attributes,
        depth: MountDepth,
    },
}

impl MountSource {
    /// Prepares `file`, so that it can be mounted in a container. This process must still be in the
    /// host's mount namespace, because the kernel copies mounts only from the current one.
    pub fn new(
        file: &HostFile,
        attributes: Attributes,
        depth: MountDepth,
        syscall_support: SyscallSupport,
    ) -> Result<Self> {
        let handle = if syscall_support.supports_detached_mounts() {
            SourceHandle::DetachedMount(detached::create_detached_mount(
                file,
                attributes,
                depth,
                syscall_support,
            )?)
        } else if syscall_support.has_private_namespace {
            let path = file.path().to_owned();
            return Err(Error::KernelTooOld { path });
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

    /// Returns the kind of the file. A directory needs a directory as its mount point, and other
    /// files need a file.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }
}
