//! Mounts by mount(2), for kernels without the mount calls by descriptor.
//!
//! mount(2) takes only paths. The paths given to it here are numbers of this process's
//! descriptors, with the host's `/proc/self/fd` as the working directory. Such a path leads to
//! the file that the descriptor holds, whatever the names in the container lead to.
//!
//! A bind mount gets its restrictions in a second step, which needs a handle on the new mount.
//! The only way to get the handle is to open the name of the target again. The file that is
//! opened is changed only if it is the file that was mounted, in a mount that did not exist
//! before and that no other process can have made. Otherwise the operation fails and the
//! container must not be started, because the new mount is not restricted yet.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::fstatvfs;

use super::attributes::{self, remount_flags};
use super::propagation::Propagation;
use super::{Attributes, Depth, Error, KernelCalls, Result};
use crate::container::{Handle, Procfs, Target};

const NONE: Option<&str> = None;

/// Mounts the file of `source` on `target`. The handle must have been opened in the current
/// mount namespace.
pub(super) fn bind(
    source: &Handle,
    target: &Target,
    attributes: Attributes,
    depth: Depth,
    propagation: &mut Propagation,
    proc: &Procfs,
) -> Result<()> {
    propagation.read_mounts()?;
    proc.enter_descriptors().map_err(Error::Host)?;
    let mut flags = MsFlags::MS_BIND;
    flags.set(MsFlags::MS_REC, depth == Depth::Recursive);
    mount(
        Some(&descriptor_path(source)[..]),
        &descriptor_path(target)[..],
        NONE,
        flags,
        NONE,
    )
    .map_err(|errno| system_error("mount on", target, errno))?;

    let top = target.open_top().map_err(Error::Container)?;
    let id = propagation.mount_id(&top)?;
    if top.identity() != source.identity() || propagation.is_known(id)? {
        return Err(Error::Exchanged {
            path: target.path(),
        });
    }
    let is_restricted = attributes != Attributes::default();
    let finished = restrict(&top, target, attributes).and_then(|()| {
        make_private(&top, target)?;
        if depth == Depth::Recursive && is_restricted && propagation.has_children(id)? {
            return Err(Error::Submounts {
                path: target.path(),
            });
        }
        Ok(())
    });
    if finished.is_err() {
        // The first error is the one to report.
        let _ = umount2(&descriptor_path(&top)[..], MntFlags::MNT_DETACH);
    }
    propagation.add_own_mount(id);
    finished
}

/// Restricts a mount of the file at `path` that is attached in a mount namespace of this
/// process alone, where no other process can use it meanwhile.
pub(super) fn restrict_private(
    mount: &OwnedFd,
    path: &Path,
    attributes: Attributes,
    depth: Depth,
    calls: KernelCalls,
) -> Result<()> {
    let proc = Rc::new(Procfs::open().map_err(Error::Host)?);
    proc.enter_descriptors().map_err(Error::Host)?;
    if attributes == Attributes::default() {
        return Ok(());
    }
    let mounts = Propagation::new(proc, calls);
    if depth == Depth::Recursive && mounts.has_children(mounts.mount_id(mount)?)? {
        let path = path.to_owned();
        return Err(Error::Submounts { path });
    }
    remount(mount, attributes).map_err(|errno| Error::system("restrict the mount of", path, errno))
}

/// Unmounts the mount that [`restrict_private`] has restricted. A copy of it that was made
/// before keeps the restrictions.
pub(super) fn unmount_private(mount: &OwnedFd) -> nix::Result<()> {
    umount2(&descriptor_path(mount)[..], MntFlags::MNT_DETACH)
}

/// Mounts a new tmpfs with the options `data` on `target`, and returns a handle on its root.
pub(super) fn tmpfs(
    target: &Target,
    attributes: Attributes,
    data: &str,
    propagation: &mut Propagation,
    proc: &Procfs,
) -> Result<OwnedFd> {
    propagation.read_mounts()?;
    proc.enter_descriptors().map_err(Error::Host)?;
    let tmpfs = Some("tmpfs");
    mount(
        tmpfs,
        &descriptor_path(target)[..],
        tmpfs,
        attributes::flags(attributes),
        Some(data),
    )
    .map_err(|errno| system_error("mount a tmpfs on", target, errno))?;
    let top = target.open_top().map_err(Error::Container)?;
    let id = propagation.mount_id(&top)?;
    if propagation.is_known(id)? {
        return Err(Error::Exchanged {
            path: target.path(),
        });
    }
    make_private(&top, target)?;
    propagation.add_own_mount(id);
    Ok(top.into_fd())
}

/// Unmounts the mount whose root is `top`. Files in it that are open stay usable.
pub(crate) fn unmount(top: &Handle, path: &Path, proc: &Procfs) -> Result<()> {
    proc.enter_descriptors().map_err(Error::Host)?;
    umount2(&descriptor_path(top)[..], MntFlags::MNT_DETACH)
        .map_err(|errno| Error::system("unmount", path, errno))
}

/// Makes the mount whose root is `top` read-only.
pub(super) fn set_read_only(top: &OwnedFd, path: &Path, proc: &Procfs) -> Result<()> {
    proc.enter_descriptors().map_err(Error::Host)?;
    let read_only = Attributes {
        read_only: true,
        ..Attributes::default()
    };
    remount(top, read_only).map_err(|errno| Error::system("make read-only", path, errno))
}

fn restrict(top: &Handle, target: &Target, attributes: Attributes) -> Result<()> {
    if attributes == Attributes::default() {
        return Ok(());
    }
    remount(top, attributes).map_err(|errno| system_error("restrict the mount on", target, errno))
}

fn remount(top: impl AsFd, attributes: Attributes) -> nix::Result<()> {
    let now = remount_flags(fstatvfs(&top)?.flags());
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | now | attributes::flags(attributes);
    mount(NONE, &descriptor_path(top)[..], NONE, flags, NONE)
}

fn make_private(top: &Handle, target: &Target) -> Result<()> {
    let flags = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(NONE, &descriptor_path(top)[..], NONE, flags, NONE)
        .map_err(|errno| system_error("make private the mount on", target, errno))
}

/// Returns the path of a descriptor, relative to the working directory `/proc/self/fd`.
fn descriptor_path(file: impl AsFd) -> String {
    file.as_fd().as_raw_fd().to_string()
}

fn system_error(action: &'static str, target: &Target, errno: Errno) -> Error {
    Error::system(action, &target.path(), errno)
}
