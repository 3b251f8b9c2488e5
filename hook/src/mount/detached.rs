//! Creates and attaches detached mounts: mounts that are not part of a mount namespace.
//!
//! A detached mount can be created in one mount namespace and attached in another one. The kernel
//! does not allow this for the bind mount of an open file. If a detached mount is never attached,
//! the kernel frees it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::attributes::to_attribute_bits;
use super::{Attributes, Error, HostFile, MountDepth, Result, SyscallSupport, bind};
use crate::container::{Handle, MountTarget};
use crate::sys::mount as syscalls;

/// Returns a detached copy of the mount that contains `file`, with `file` as its root. The
/// attributes and the private propagation are set before any other process can see the copy.
pub(super) fn create_detached_mount(
    file: &HostFile,
    attributes: Attributes,
    depth: MountDepth,
    syscall_support: SyscallSupport,
) -> Result<OwnedFd> {
    let is_recursive = depth == MountDepth::Recursive;
    let to_copy_error = |errno| Error::system("copy the mount of", file.path(), errno);
    let copy =
        |file: BorrowedFd<'_>| syscalls::open_tree_clone(file, is_recursive).map_err(to_copy_error);
    let mount = copy(file.as_fd())?;
    if !syscall_support.mount_setattr {
        // mount(2) can change the attributes only of an attached mount. So the copy is attached in
        // a private mount namespace, changed there, and copied again to a detached mount.
        syscalls::move_mount(&mount, file).map_err(to_copy_error)?;
        bind::set_private_mount_attributes(
            &mount,
            file.path(),
            attributes,
            depth,
            syscall_support,
        )?;
        let restricted_copy = copy(mount.as_fd())?;
        bind::unmount_private_mount(&mount).map_err(to_copy_error)?;
        return Ok(restricted_copy);
    }
    syscalls::set_attributes(
        &mount,
        is_recursive,
        to_attribute_bits(attributes),
        libc::MS_PRIVATE,
    )
    .map_err(|errno| Error::system("restrict the mount of", file.path(), errno))?;
    Ok(mount)
}

/// Returns a detached copy of a mount that this process has made in the current mount namespace.
/// The copy has the same attributes as the mount, and private propagation.
pub(super) fn copy_attached_mount(
    mounted_file: &Handle,
    path: &Path,
    syscall_support: SyscallSupport,
) -> Result<OwnedFd> {
    let to_copy_error = |errno| Error::system("copy the mount of", path, errno);
    let copy = syscalls::open_tree_clone(mounted_file, false).map_err(to_copy_error)?;
    if syscall_support.mount_setattr {
        let attributes = to_attribute_bits(Attributes::default());
        syscalls::set_attributes(&copy, false, attributes, libc::MS_PRIVATE)
            .map_err(to_copy_error)?;
    }
    Ok(copy)
}

/// Attaches a detached mount at `target` with move_mount(2). The descriptor `mount` stays a valid
/// handle on the root of the mount.
pub(super) fn attach(mount: &OwnedFd, target: &MountTarget) -> Result<()> {
    syscalls::move_mount(mount, target)
        .map_err(|errno| Error::system("mount on", &target.path(), errno))
}
