//! Mounts with mount(2), for kernels that do not have the system calls that mount by descriptors.
//!
//! mount(2) takes only paths. The paths that are passed here are the numbers of this process's
//! descriptors, and the working directory is the host's `/proc/self/fd`. Such a path leads to the
//! descriptor's file, even if the file was renamed or replaced in the container.
//!
//! A bind mount gets its attributes, such as read-only, in a second step. This step needs a handle
//! on the new mount. The only way to get the handle is to open the name of the target again, and a
//! process of the container may have replaced that name. So two checks follow: the opened file must
//! be the mounted file, and its mount must be new. If a check fails, the operation fails. The
//! container must then not be started, because the new mount is not restricted.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::fstatvfs;

use super::attributes::{self, to_remount_flags};
use super::propagation::PropagationChecker;
use super::{Attributes, Error, MountDepth, Result, SyscallSupport};
use crate::container::{Handle, MountTarget, Procfs};

/// The value for arguments of mount(2) that an operation does not use.
const NO_ARGUMENT: Option<&str> = None;

/// Mounts the file `source` on `target` with mount(2). The file must have been opened in the
/// current mount namespace, because the kernel refuses a bind mount from another one.
pub(super) fn bind_mount(
    source: &Handle,
    target: &MountTarget,
    attributes: Attributes,
    depth: MountDepth,
    propagation: &mut PropagationChecker,
    procfs: &Procfs,
) -> Result<()> {
    propagation.read_mounts()?;
    procfs.enter_fd_directory().map_err(Error::Host)?;
    let mut flags = MsFlags::MS_BIND;
    flags.set(MsFlags::MS_REC, depth == MountDepth::Recursive);
    mount(
        Some(&descriptor_path(source)[..]),
        &descriptor_path(target)[..],
        NO_ARGUMENT,
        flags,
        NO_ARGUMENT,
    )
    .map_err(|errno| system_error("mount on", target, errno))?;

    let mount_root = target.reopen_by_name().map_err(Error::Container)?;
    let mount_id = propagation.read_mount_id(&mount_root)?;
    if mount_root.identity() != source.identity() || propagation.is_known_mount(mount_id)? {
        return Err(Error::TargetReplaced {
            path: target.path(),
        });
    }
    let is_restricted = attributes != Attributes::default();
    let result = set_mount_attributes(&mount_root, target, attributes).and_then(|()| {
        make_mount_private(&mount_root, target)?;
        if depth == MountDepth::Recursive
            && is_restricted
            && propagation.has_child_mounts(mount_id)?
        {
            return Err(Error::Submounts {
                path: target.path(),
            });
        }
        Ok(())
    });
    if result.is_err() {
        // The mount is removed, because it may lack its restrictions. An error of umount2(2) is
        // ignored, because the first error is returned.
        let _ = umount2(&descriptor_path(&mount_root)[..], MntFlags::MNT_DETACH);
    }
    propagation.record_own_mount(mount_id);
    result
}

/// Sets the attributes of the mount `mount`. It must be attached in a mount namespace of this
/// process alone, so that no other process can use the mount before it is restricted. `path` is
/// only used in error messages.
pub(super) fn set_private_mount_attributes(
    mount: &OwnedFd,
    path: &Path,
    attributes: Attributes,
    depth: MountDepth,
    syscall_support: SyscallSupport,
) -> Result<()> {
    let procfs = Rc::new(Procfs::open().map_err(Error::Host)?);
    procfs.enter_fd_directory().map_err(Error::Host)?;
    if attributes == Attributes::default() {
        return Ok(());
    }
    let propagation = PropagationChecker::new(procfs, syscall_support);
    if depth == MountDepth::Recursive
        && propagation.has_child_mounts(propagation.read_mount_id(mount)?)?
    {
        let path = path.to_owned();
        return Err(Error::Submounts { path });
    }
    remount(mount, attributes).map_err(|errno| Error::system("restrict the mount of", path, errno))
}

/// Unmounts a mount that [`set_private_mount_attributes`] has restricted. A detached copy of the
/// mount stays and keeps the attributes.
pub(super) fn unmount_private_mount(mount: &OwnedFd) -> nix::Result<()> {
    umount2(&descriptor_path(mount)[..], MntFlags::MNT_DETACH)
}

/// Mounts a new tmpfs with the mount options `options`, such as `size=1048576,mode=755`, on
/// `target`. Returns a handle on the root of the tmpfs.
pub(super) fn mount_tmpfs(
    target: &MountTarget,
    attributes: Attributes,
    options: &str,
    propagation: &mut PropagationChecker,
    procfs: &Procfs,
) -> Result<OwnedFd> {
    propagation.read_mounts()?;
    procfs.enter_fd_directory().map_err(Error::Host)?;
    let fs_type = Some("tmpfs");
    mount(
        fs_type,
        &descriptor_path(target)[..],
        fs_type,
        attributes::to_mount_flags(attributes),
        Some(options),
    )
    .map_err(|errno| system_error("mount a tmpfs on", target, errno))?;
    let root = target.reopen_by_name().map_err(Error::Container)?;
    let mount_id = propagation.read_mount_id(&root)?;
    if propagation.is_known_mount(mount_id)? {
        return Err(Error::TargetReplaced {
            path: target.path(),
        });
    }
    make_mount_private(&root, target)?;
    propagation.record_own_mount(mount_id);
    Ok(root.into_fd())
}

/// Unmounts the mount whose root is `mount_root`, without waiting for programs that use it
/// (`MNT_DETACH`). They can still use their open files.
pub fn unmount(mount_root: &Handle, path: &Path, procfs: &Procfs) -> Result<()> {
    procfs.enter_fd_directory().map_err(Error::Host)?;
    umount2(&descriptor_path(mount_root)[..], MntFlags::MNT_DETACH)
        .map_err(|errno| Error::system("unmount", path, errno))
}

pub(super) fn set_read_only(mount_root: &OwnedFd, path: &Path, procfs: &Procfs) -> Result<()> {
    procfs.enter_fd_directory().map_err(Error::Host)?;
    let read_only = Attributes {
        read_only: true,
        ..Attributes::default()
    };
    remount(mount_root, read_only).map_err(|errno| Error::system("make read-only", path, errno))
}

fn set_mount_attributes(
    mount_root: &Handle,
    target: &MountTarget,
    attributes: Attributes,
) -> Result<()> {
    if attributes == Attributes::default() {
        return Ok(());
    }
    remount(mount_root, attributes)
        .map_err(|errno| system_error("restrict the mount on", target, errno))
}

fn remount(mount_root: impl AsFd, attributes: Attributes) -> nix::Result<()> {
    let current_flags = to_remount_flags(fstatvfs(&mount_root)?.flags());
    let flags = MsFlags::MS_REMOUNT
        | MsFlags::MS_BIND
        | current_flags
        | attributes::to_mount_flags(attributes);
    mount(
        NO_ARGUMENT,
        &descriptor_path(mount_root)[..],
        NO_ARGUMENT,
        flags,
        NO_ARGUMENT,
    )
}

fn make_mount_private(mount_root: &Handle, target: &MountTarget) -> Result<()> {
    let flags = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(
        NO_ARGUMENT,
        &descriptor_path(mount_root)[..],
        NO_ARGUMENT,
        flags,
        NO_ARGUMENT,
    )
    .map_err(|errno| system_error("make private the mount on", target, errno))
}

/// Returns the number of a file's descriptor as a text. The working directory is `/proc/self/fd`,
/// so the number is a relative path of the open file.
fn descriptor_path(file: impl AsFd) -> String {
    file.as_fd().as_raw_fd().to_string()
}

fn system_error(action: &'static str, target: &MountTarget, errno: Errno) -> Error {
    Error::system(action, &target.path(), errno)
}
