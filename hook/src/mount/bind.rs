//! Mounting by mount(2), for kernels without the calls by descriptor.
//!
//! mount(2) takes paths only. The paths given here are the numbers of our own
//! descriptors, with the host's `/proc/self/fd` as the working directory: such
//! a path leads to the very file that the descriptor holds, and no name in the
//! container is looked at.
//!
//! A bind mount takes its restrictions in a second step, which needs a handle
//! on the new mount, and there is only one way to get one: through the
//! target's name. So what is found there is changed only if it is the file
//! that was mounted, in a mount that did not exist before and that nobody else
//! can have made. If anything else is found, the operation fails, and the
//! container must not be started: what was mounted is not restricted yet.

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

/// Mounts the file behind `source` on `target`. The handle must belong to the
/// current namespace.
pub(super) fn bind(
    source: &Handle,
    target: &Target,
    attributes: Attributes,
    depth: Depth,
    propagation: &mut Propagation,
    proc: &Procfs,
) -> Result<()> {
    propagation.remember()?;
    proc.enter_descriptors().map_err(Error::Host)?;
    let mut flags = MsFlags::MS_BIND;
    flags.set(MsFlags::MS_REC, depth == Depth::Recursive);
    mount(
        Some(&number(source)[..]),
        &number(target)[..],
        NONE,
        flags,
        NONE,
    )
    .map_err(|errno| system("mount on", target, errno))?;

    let top = target.open_top().map_err(Error::Container)?;
    let id = propagation.mount_id(&top)?;
    if top.identity() != source.identity() || propagation.knows(id)? {
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
        // The first fault is the one to report.
        let _ = umount2(&number(&top)[..], MntFlags::MNT_DETACH);
    }
    propagation.add_ours(id);
    finished
}

/// Restricts a mount that has its place where no other process sees it, of the file at `path`.
pub(super) fn restrict_unseen(
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

/// Takes away what [`restrict_unseen`] has restricted; a copy stays.
pub(super) fn unmount_unseen(mount: &OwnedFd) -> nix::Result<()> {
    umount2(&number(mount)[..], MntFlags::MNT_DETACH)
}

/// Mounts a new tmpfs with the options `data` on `target`, and gives a handle
/// on its root.
pub(super) fn tmpfs(
    target: &Target,
    attributes: Attributes,
    data: &str,
    propagation: &mut Propagation,
    proc: &Procfs,
) -> Result<OwnedFd> {
    propagation.remember()?;
    proc.enter_descriptors().map_err(Error::Host)?;
    let tmpfs = Some("tmpfs");
    mount(
        tmpfs,
        &number(target)[..],
        tmpfs,
        attributes::flags(attributes),
        Some(data),
    )
    .map_err(|errno| system("mount a tmpfs on", target, errno))?;
    let top = target.open_top().map_err(Error::Container)?;
    let id = propagation.mount_id(&top)?;
    if propagation.knows(id)? {
        return Err(Error::Exchanged {
            path: target.path(),
        });
    }
    make_private(&top, target)?;
    propagation.add_ours(id);
    Ok(top.into_fd())
}

/// Takes away the mount whose root `top` is; what is open stays open.
pub(crate) fn unmount(top: &Handle, path: &Path, proc: &Procfs) -> Result<()> {
    proc.enter_descriptors().map_err(Error::Host)?;
    umount2(&number(top)[..], MntFlags::MNT_DETACH)
        .map_err(|errno| Error::system("unmount", path, errno))
}

/// Makes the mount whose root `top` is read-only.
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
    remount(top, attributes).map_err(|errno| system("restrict the mount on", target, errno))
}

fn remount(top: impl AsFd, attributes: Attributes) -> nix::Result<()> {
    let now = remount_flags(fstatvfs(&top)?.flags());
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | now | attributes::flags(attributes);
    mount(NONE, &number(top)[..], NONE, flags, NONE)
}

fn make_private(top: &Handle, target: &Target) -> Result<()> {
    let flags = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(NONE, &number(top)[..], NONE, flags, NONE)
        .map_err(|errno| system("make private the mount on", target, errno))
}

/// The path of a descriptor in the working directory.
fn number(file: impl AsFd) -> String {
    file.as_fd().as_raw_fd().to_string()
}

fn system(action: &'static str, target: &Target, errno: Errno) -> Error {
    Error::system(action, &target.path(), errno)
}
