//! Mounts that are not attached yet.
//!
//! A detached mount can be carried from one mount namespace into another, which an ordinary
//! handle cannot. The kernel frees it if it is never attached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::attributes::mount_attr;
use super::{Attributes, Depth, Error, HostFile, KernelCalls, Result, bind};
use crate::container::{Handle, Target};
use crate::sys::mount as calls;

/// Copies the mount that `file` is in, with `file` as the root of the copy. The copy gets its
/// restrictions and private propagation before any other process can see it.
pub(super) fn clone_mount(
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
        // Only an attached mount can be restricted by mount(2). The copy is attached in a
        // private mount namespace, restricted there, and copied again to get a detached mount.
        calls::move_mount(&mount, file).map_err(failed)?;
        bind::restrict_private(&mount, file.path(), attributes, depth, with)?;
        let copied = copy(mount.as_fd())?;
        bind::unmount_private(&mount).map_err(failed)?;
        return Ok(copied);
    }
    calls::set_attributes(&mount, recursive, mount_attr(attributes), libc::MS_PRIVATE)
        .map_err(|errno| Error::system("restrict the mount of", file.path(), errno))?;
    Ok(mount)
}

/// Copies the mount of a file that is mounted in the current mount namespace. The copy has the
/// same restrictions. It is private, as each mount is that this process made: without
/// `mount_setattr`, its propagation is that of the mount.
pub(super) fn copy_mounted(mounted: &Handle, path: &Path, with: KernelCalls) -> Result<OwnedFd> {
    let failed = |errno| Error::system("copy the mount of", path, errno);
    let copy = calls::open_tree_clone(mounted, false).map_err(failed)?;
    if with.mount_setattr {
        let attributes = mount_attr(Attributes::default());
        calls::set_attributes(&copy, false, attributes, libc::MS_PRIVATE).map_err(failed)?;
    }
    Ok(copy)
}

/// Attaches a detached mount at `target`. The descriptor stays a handle on its root.
pub(super) fn attach(mount: &OwnedFd, target: &Target) -> Result<()> {
    calls::move_mount(mount, target)
        .map_err(|errno| Error::system("mount on", &target.path(), errno))
}
