//! Attaches sources at targets.

use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;

use super::propagation::Propagation;
use super::source::SourceForm;
use super::{Attributes, Depth, Error, KernelCalls, Result, Source, SourceRoot, bind, detached};
use crate::container::{ContainerRoot, FileOwner, Handle, Procfs, Target};

/// Makes mounts in the mount namespace of a container that was entered.
#[derive(Debug)]
pub struct Mounter {
    pub(super) calls: KernelCalls,
    pub(super) proc: Rc<Procfs>,
    pub(super) propagation: Propagation,
    pub(super) owner: FileOwner,
    /// The host's trees as seen in the container's mount namespace, opened when they are first
    /// needed. Only kernels without detached mounts need them.
    hosts: Vec<(Rc<Path>, SourceRoot)>,
}

impl Mounter {
    /// Creates a mounter for the mount namespace of `root`. `calls` must be the value with
    /// which the sources were created.
    pub fn new(root: &ContainerRoot, calls: KernelCalls) -> Self {
        Self {
            calls,
            proc: Rc::clone(root.proc()),
            propagation: Propagation::new(Rc::clone(root.proc()), calls),
            owner: root.owner(),
            hosts: Vec::new(),
        }
    }

    /// Mounts `source` on `target`.
    ///
    /// # Errors
    /// [`Error::Shared`] if the mount would appear on the host too. Kernels without detached
    /// mounts can also cause [`Error::Changed`], [`Error::Exchanged`] and
    /// [`Error::Submounts`], the others [`Error::Removed`]. All other failures are
    /// [`Error::System`].
    pub fn attach(&mut self, source: Source, target: &Target) -> Result<()> {
        self.propagation.check(target)?;
        let identity = source.identity();
        let (root, attributes, depth) = match source.form {
            SourceForm::Detached(mount) => {
                return match detached::attach(&mount, target) {
                    Err(Error::System {
                        errno: Errno::ENOENT,
                        ..
                    }) => Err(Error::Removed {
                        from: source.path,
                        to: target.path(),
                    }),
                    attached => attached,
                };
            }
            SourceForm::Reopened {
                root,
                attributes,
                depth,
            } => (root, attributes, depth),
        };
        let file = self.host(&root)?.find(&source.path)?;
        if file.identity() != identity {
            return Err(Error::Changed { path: source.path });
        }
        let (propagation, proc) = (&mut self.propagation, &*self.proc);
        bind::bind(file.handle(), target, attributes, depth, propagation, proc)
    }

    /// Mounts a file that was mounted in the container before on another target. `path` is its
    /// path, for messages. The new mount has the restrictions of the first one.
    ///
    /// # Errors
    /// The errors of [`Self::attach`].
    pub(crate) fn attach_copy(
        &mut self,
        mounted: &Handle,
        path: &Path,
        target: &Target,
    ) -> Result<()> {
        self.propagation.check(target)?;
        if self.calls.detached_mounts() {
            let copy = detached::copy_mounted(mounted, path, self.calls)?;
            return detached::attach(&copy, target);
        }
        let (propagation, proc) = (&mut self.propagation, &*self.proc);
        let attributes = Attributes::default();
        bind::bind(
            mounted,
            target,
            attributes,
            Depth::Single,
            propagation,
            proc,
        )
    }

    fn host(&mut self, path: &Rc<Path>) -> Result<&SourceRoot> {
        let index = match self.hosts.iter().position(|(known, _)| known == path) {
            Some(index) => index,
            None => {
                let root = SourceRoot::open(path, self.calls.resolver())?;
                self.hosts.push((Rc::clone(path), root));
                self.hosts.len() - 1
            }
        };
        Ok(&self.hosts[index].1)
    }
}
