//! Mounts opened files of the host on mount points in a container.

use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;

use super::propagation::PropagationChecker;
use super::source::SourceHandle;
use super::{
    Attributes, Error, MountDepth, MountSource, Result, SourceRoot, SyscallSupport, bind, detached,
};
use crate::container::{ContainerRoot, FileOwner, Handle, MountTarget, Procfs};

/// Mounts opened files of the host in a container. This process must have entered the container's
/// mount namespace.
#[derive(Debug)]
pub struct Mounter {
    pub(super) syscall_support: SyscallSupport,
    pub(super) procfs: Rc<Procfs>,
    pub(super) propagation: PropagationChecker,
    pub(super) owner: FileOwner,
    /// The root directories of the sources, opened in the container's mount namespace. They are
    /// only used on kernels without detached mounts, which must open each source again there.
    source_roots: Vec<(Rc<Path>, SourceRoot)>,
}

impl Mounter {
    /// Creates a mounter for the mount namespace of `root`. All sources must have been created with
    /// the same `syscall_support`, because it determines how a source is mounted.
    pub fn new(root: &ContainerRoot, syscall_support: SyscallSupport) -> Self {
        Self {
            syscall_support,
            procfs: Rc::clone(root.procfs()),
            propagation: PropagationChecker::new(Rc::clone(root.procfs()), syscall_support),
            owner: root.owner(),
            source_roots: Vec::new(),
        }
    }

    /// Mounts `source` on `target`.
    ///
    /// # Errors
    /// [`Error::Shared`] if the mount would also appear on the host, and [`Error::NotAttached`]. On
    /// kernels without detached mounts, also [`Error::Changed`], [`Error::TargetReplaced`],
    /// [`Error::Submounts`], and the errors of [`SourceRoot::open_file`]. On other kernels, also
    /// [`Error::Removed`]. A failed system call is [`Error::System`], [`Error::Host`] or
    /// [`Error::Container`].
    pub fn attach(&mut self, source: MountSource, target: &MountTarget) -> Result<()> {
        self.propagation.check_target(target)?;
        let identity = source.identity();
        let (root_path, attributes, depth) = match source.handle {
            SourceHandle::DetachedMount(mount) => {
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
            SourceHandle::PathInRoot {
                root_path,
                attributes,
                depth,
            } => (root_path, attributes, depth),
        };
        let file = self.open_source_root(&root_path)?.open_file(&source.path)?;
        if file.identity() != identity {
            return Err(Error::Changed { path: source.path });
        }
        let (propagation, procfs) = (&mut self.propagation, &*self.procfs);
        bind::bind_mount(
            file.handle(),
            target,
            attributes,
            depth,
            propagation,
            procfs,
        )
    }

    /// Mounts an already mounted file of the container on a second target, with the same
    /// attributes. This process must have made the first mount. `path` is the path of the file, and
    /// is only used in error messages.
    ///
    /// # Errors
    /// The errors of [`Self::attach`].
    pub(crate) fn attach_copy(
        &mut self,
        mounted_file: &Handle,
        path: &Path,
        target: &MountTarget,
    ) -> Result<()> {
        self.propagation.check_target(target)?;
        if self.syscall_support.supports_detached_mounts() {
            let mount_copy =
                detached::copy_attached_mount(mounted_file, path, self.syscall_support)?;
            return detached::attach(&mount_copy, target);
        }
        let (propagation, procfs) = (&mut self.propagation, &*self.procfs);
        let attributes = Attributes::default();
        bind::bind_mount(
            mounted_file,
            target,
            attributes,
            MountDepth::Single,
            propagation,
            procfs,
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
                let root = SourceRoot::open(path, self.syscall_support.resolver())?;
                self.source_roots.push((Rc::clone(path), root));
                self.source_roots.len() - 1
            }
        };
        Ok(&self.source_roots[index].1)
    }
}
