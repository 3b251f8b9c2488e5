//! Something of the host, ready to be mounted.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Attributes, Error, HostFile, KernelCalls, Result, detached};
use crate::container::{FileKind, Identity};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The one mount that the source is in (`bind`).
    Single,
    /// All mounts below it too (`rbind`), with the same restrictions.
    Recursive,
}

/// A file or directory of the host that was found and checked, on its way
/// into a container.
#[derive(Debug)]
pub struct Source {
    pub(super) form: Form,
    pub(super) path: PathBuf,
    kind: FileKind,
    identity: Identity,
}

/// What is carried into the container's namespace.
#[derive(Debug)]
pub(super) enum Form {
    Detached(OwnedFd),
    /// Where to find the file again, for kernels that cannot do the above.
    Again {
        root: Rc<Path>,
        attributes: Attributes,
        depth: Depth,
    },
}

impl Source {
    /// Prepares `file` for mounting, in the host's mount namespace: it cannot
    /// be done after the container's is entered.
    pub fn new(
        file: &HostFile,
        attributes: Attributes,
        depth: Depth,
        calls: KernelCalls,
    ) -> Result<Self> {
        let form = if calls.detached_mounts() {
            Form::Detached(detached::clone_of(file, attributes, depth, calls)?)
        } else if calls.unseen {
            let path = file.path().to_owned();
            return Err(Error::TooOld { path });
        } else {
            Form::Again {
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

    /// What kind of file it is, and so what kind of target it needs.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }
}
