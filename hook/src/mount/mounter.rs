//! Attaches sources at targets in a container.

use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;

use super::propagation::Propagation;
use super::source::SourceForm;
use super::{Attributes, Depth, Error, KernelCalls, Result, Source, SourceRoot, bind, detached};
use crate::container::{ContainerRoot, FileOwner, Handle, Procfs, Target};

/// Makes mounts in the mount namespace of a container, which this process has entered.
#[derive(Debug)]
pub struct Mounter {
    pub(super) calls: KernelCalls,
    pub(super) proc: Rc<Procfs>,
    pub(super) propagation: Propagation,
    pub(super) owner: FileOwner,
    /// The host's root directories in the container's mount namespace, by path. They are opened
    /// when they are first needed, which is only the case on kernels without detached mounts.
    source_roots: Vec<(Rc<Path>, SourceRoot)>,
}

impl Mounter {
    /// Creates a mounter for the mount namespace of `root`. `calls` must be the value with which
    /// the sources were prepared.
    pub fn new(root: &ContainerRoot, calls: KernelCalls) -> Self {
        Self {
            calls,
            proc: Rc::clone(root.proc()),
            propagation: Propagation::new(Rc::clone(root.proc()), calls),
            owner: root.owner(),
            source_roots: Vec::new(),
        }
    }

    /// Mounts `source` on `target`.
    ///
    /// # Errors
    /// [`Error::Shared`] if the mount would appear on the host too. On kernels without detached
    /// mounts, also [`Error::Changed`], [`Error::Exchanged`] and [`Error::Submounts`]; on other
    /// kernels, [`Error::Removed`]. All other failures are [`Error::System`].
    pub fn attach(&mut self, source: Source, target: &Target) -> Result<()> {
        self.propagation.check_target(target)?;
        let identity = source.identity();
        let (root, attributes, depth) = match source.form {
            SourceForm::Detached(mount) => {
                return match detached::attach(&mount, target) {
                    Err(Error::System {
                        errno: Errno::ENOENT,
                        ..
                    }) => Err(Error::Removed {
                        source_path: source.path,
                        target_path: target.path(),
                    }),
                    result => result,
                };
            }
            SourceForm::Reopened {
                root,
                attributes,
                depth,
            } => (root, attributes, depth),
        };
        let file = self.open_source_root(&root)?.open_file(&source.path)?;
        if file.identity() != identity {
            return Err(Error::Changed { path: source.path });
        }
        let (propagation, proc) = (&mut self.propagation, &*self.proc);
        bind::bind_mount(file.handle(), target, attributes, depth, propagation, proc)
    }

    /// Mounts a file on another target that this process has mounted in the container already.
    /// `path` is the path of the file, for messages. The new mount has the restrictions of the
    /// first mount.
    ///
    /// # Errors
    /// The errors of [`Self::attach`].
    pub(crate) fn attach_copy(
        &mut self,
        mounted_file: &Handle,
        path: &Path,
        target: &Target,
    ) -> Result<()> {
        self.propagation.check_target(target)?;
        if self.calls.supports_detached_mounts() {
            let mount_copy = detached::copy_own_mount(mounted_file, path, self.calls)?;
            return detached::attach(&mount_copy, target);
        }
        let (propagation, proc) = (&mut self.propagation, &*self.proc);
        let attributes = Attributes::default();
        bind::bind_mount(
            mounted_file,
            target,
            attributes,
            Depth::Single,
            propagation,
            proc,
        )
    }

    fn open_source_root(&mut self, path: &Rc<Path>) -> Result<&SourceRoot> {
        let index = match self
            .source_roots
            .iter()
            .position(|(known_path, _)| known_path == path)
        {
            Some(index) => index,
            None => {
                let root = SourceRoot::open(path, self.calls.resolver())?;
                self.source_roots.push((Rc::clone(path), root));
                self.source_roots.len() - 1
            }
        };
        Ok(&self.source_roots[index].1)
    }
}
