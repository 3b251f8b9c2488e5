//! A file or directory of the host that is ready to be mounted.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Attributes, Error, HostFile, KernelCalls, Result, detached};
use crate::container::{FileKind, Identity};

/// Whether the mounts below a source are mounted with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The source without the mounts below it (`bind`).
    Single,
    /// The source with all mounts below it (`rbind`), which get the same restrictions.
    Recursive,
}

/// A file or directory of the host that was opened and checked, so that it can be mounted in the
/// mount namespace of a container.
#[derive(Debug)]
pub struct Source {
    pub(super) form: SourceForm,
    pub(super) path: PathBuf,
    kind: FileKind,
    identity: Identity,
}

/// The form in which a source can be used in another mount namespace.
#[derive(Debug)]
pub(super) enum SourceForm {
    /// A detached mount.
    Detached(OwnedFd),
    /// The root directory in which the file is opened again by its path, for kernels without
    /// detached mounts.
    Reopened {
        root: Rc<Path>,
        attributes: Attributes,
        depth: Depth,
    },
}

impl Source {
    /// Prepares `file` for mounting. This process must still be in the host's mount namespace.
    pub fn new(
        file: &HostFile,
        attributes: Attributes,
        depth: Depth,
        calls: KernelCalls,
    ) -> Result<Self> {
        let form = if calls.supports_detached_mounts() {
            SourceForm::Detached(detached::clone_mount(file, attributes, depth, calls)?)
        } else if calls.has_private_namespace {
            let path = file.path().to_owned();
            return Err(Error::TooOld { path });
        } else {
            SourceForm::Reopened {
                root: Rc::clone(file.root()),
                attributes,
                depth,
            }
        };
        Ok(Self {
            form,
            path: file.path().to_owned(),
            kind: file.kind(),
            identity: file.identity(),
        })
    }

    /// Returns the kind of the file, which determines the kind of the target.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }
}
