//! Mounts that are attached nowhere yet.
//!
//! A detached mount can be carried from one mount namespace into another,
//! which a plain handle cannot. It goes away by itself if it is never attached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::attributes::mount_attr;
use super::{Attributes, Depth, Error, HostFile, KernelCalls, Result, bind};
use crate::container::Target;
use crate::sys::mount as calls;

/// A mount without a place.
#[derive(Debug)]
pub(super) struct DetachedMount(OwnedFd);

impl DetachedMount {
    /// A copy of the mount that `file` is in, with `file` as its root. It is
    /// restricted, and receives and sends no mounts, before anybody sees it.
    pub(super) fn clone_of(
        file: &HostFile,
        attributes: Attributes,
        depth: Depth,
        with: KernelCalls,
    ) -> Result<Self> {
        let recursive = depth == Depth::Recursive;
        let failed = |errno| Error::system("copy the mount of", file.path(), errno);
        let copy = |file: BorrowedFd<'_>| calls::open_tree_clone(file, recursive).map_err(failed);
        let mount = copy(file.as_fd())?;
        if !with.mount_setattr {
            // Nobody else sees it, and what it is copied from is private: only a mount with a
            // place can be changed, and a copy of that has none again.
            calls::move_mount(&mount, file).map_err(failed)?;
            bind::restrict_unseen(&mount, file.path(), attributes, depth, with)?;
            let copied = copy(mount.as_fd())?;
            bind::unmount_unseen(&mount).map_err(failed)?;
            return Ok(Self(copied));
        }
        let attr = calls::mount_attr {
            attr_set: mount_attr(attributes),
            attr_clr: 0,
            propagation: libc::MS_PRIVATE,
            userns_fd: 0,
        };
        calls::set_attributes(&mount, recursive, &attr)
            .map_err(|errno| Error::system("restrict the mount of", file.path(), errno))?;
        Ok(Self(mount))
    }

    /// Takes a mount made by `fsmount`.
    pub(super) fn new(mount: OwnedFd) -> Self {
        Self(mount)
    }

    /// Gives the mount its place. The descriptor stays a handle on its root.
    pub(super) fn attach(self, target: &Target) -> Result<OwnedFd> {
        calls::move_mount(&self.0, target)
            .map_err(|errno| Error::system("mount on", &target.path(), errno))?;
        Ok(self.0)
    }
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
