//! A file or directory of the host that is ready to be mounted.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Attributes, Error, HostFile, KernelCalls, Result, detached};
use crate::container::{FileKind, Identity};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The mount that the source is in, without the mounts below it (`bind`).
    Single,
    /// The source and all mounts below it (`rbind`), with the same restrictions.
    Recursive,
}

/// A file or directory of the host that was found and checked, and is carried into the mount
/// namespace of a container.
#[derive(Debug)]
pub struct Source {
    pub(super) form: SourceForm,
    pub(super) path: PathBuf,
    kind: FileKind,
    identity: Identity,
}

/// The form in which the source is carried into the mount namespace.
#[derive(Debug)]
pub(super) enum SourceForm {
    Detached(OwnedFd),
    /// The place where the file can be found again, for kernels without detached mounts.
    Reopened {
        root: Rc<Path>,
        attributes: Attributes,
        depth: Depth,
    },
}

impl Source {
    /// Prepares `file` for mounting. This must be done in the host's mount namespace, before
    /// the container's is entered.
    pub fn new(
        file: &HostFile,
        attributes: Attributes,
        depth: Depth,
        calls: KernelCalls,
    ) -> Result<Self> {
        let form = if calls.detached_mounts() {
            SourceForm::Detached(detached::clone_mount(file, attributes, depth, calls)?)
        } else if calls.unseen {
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
