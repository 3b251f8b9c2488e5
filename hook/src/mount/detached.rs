//! Mounts that are attached nowhere yet.
//!
//! A detached mount can be carried from one mount namespace into another,
//! which a plain handle cannot. It goes away by itself if it is never attached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::attributes::mount_attr;
use super::{Attributes, Depth, Error, HostFile, KernelCalls, Result, bind};
use crate::container::Target;
use crate::sys::mount as calls;

/// A copy of the mount that `file` is in, with `file` as its root. It is
/// restricted, and receives and sends no mounts, before anybody sees it.
pub(super) fn clone_of(
    file: &HostFile,
    attributes: Attributes,
    depth: Depth,
    with: KernelCalls,
) -> Result<OwnedFd> {
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
        return Ok(copied);
    }
    calls::set_attributes(&mount, recursive, mount_attr(attributes), libc::MS_PRIVATE)
        .map_err(|errno| Error::system("restrict the mount of", file.path(), errno))?;
    Ok(mount)
}

/// Gives a detached mount its place. The descriptor stays a handle on its root.
pub(super) fn attach(mount: &OwnedFd, target: &Target) -> Result<()> {
    calls::move_mount(mount, target)
        .map_err(|errno| Error::system("mount on", &target.path(), errno))
}
