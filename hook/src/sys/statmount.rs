//! Queries a single mount, which is faster than reading the list of all mounts. statx(2) returns
//! the id of the mount. With this id, statmount(2) returns its parent and its propagation type
//! (Linux 6.8).

use std::ffi::CStr;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;

use libc::{c_int, c_long, c_uint};
use nix::Result;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, makedev};

/// The statx(2) mask that selects the id that a mount has in `/proc/self/mountinfo` (Linux 5.8).
/// The kernel may reuse this id when the mount no longer exists.
pub(crate) const STATX_MNT_ID: c_uint = libc::STATX_MNT_ID;

/// The statx(2) mask that selects the unique id of a mount (Linux 6.8). The kernel never reuses
/// this id. It is an argument of statmount(2).
pub(crate) const STATX_MNT_ID_UNIQUE: c_uint = libc::STATX_MNT_ID_UNIQUE;

/// The number of the system call statmount(2). It is the same on all architectures that use the
/// numbers of `include/uapi/asm-generic/unistd.h`.
const SYS_STATMOUNT: c_long = 457;

/// The statmount(2) mask that selects the ids, the attributes and the propagation type of a mount.
const STATMOUNT_MNT_BASIC: u64 = 2;

/// The argument of statmount(2), which is `struct mnt_id_req` of `include/uapi/linux/mount.h`.
#[repr(C)]
struct MountIdRequest {
    size: u32,
    spare: u32,
    mount_id: u64,
    mask: u64,
}

/// The result of statmount(2). It has the first fields of `struct statmount` of
/// `include/uapi/linux/mount.h`.
#[repr(C)]
struct StatmountResult {
    size: u32,
    options: u32,
    mask: u64,
    device: [u32; 2],
    magic: u64,
    flags: u32,
    fs_type: u32,
    id: u64,
    parent: u64,
    old_id: u32,
    old_parent: u32,
    attributes: u64,
    propagation: u64,
    /// Space for the other fields, which make the structure 512 bytes long. The kernel does not
    /// write more bytes than the buffer has.
    reserved: [u64; 54],
}

const _: () =
    assert!(size_of::<StatmountResult>() == 512 && offset_of!(StatmountResult, propagation) == 72);

/// Returns an id of the mount that contains `file`. `id_mask` selects the kind of id:
/// [`STATX_MNT_ID`] or [`STATX_MNT_ID_UNIQUE`]. Returns `None` if the kernel does not support this
/// kind.
pub(crate) fn query_mount_id(file: impl AsFd, id_mask: c_uint) -> Result<Option<u64>> {
    let stat = statx(file.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH, id_mask)?;
    Ok((stat.stx_mask & id_mask != 0).then_some(stat.stx_mnt_id))
}

/// Returns the type and the device number of the file at `path`. Follows symbolic links.
///
/// The kernel does not ask the server of a network or FUSE file system, because of
/// `AT_STATX_DONT_SYNC`. Such a server might never answer.
pub fn stat_kind_and_device(path: &CStr) -> Result<(SFlag, libc::dev_t)> {
    let flags = libc::AT_STATX_DONT_SYNC;
    let stat = statx(libc::AT_FDCWD, path, flags, libc::STATX_TYPE)?;
    let kind = SFlag::from_bits_truncate(stat.stx_mode.into()) & SFlag::S_IFMT;
    let number = makedev(stat.stx_rdev_major.into(), stat.stx_rdev_minor.into());
    Ok((kind, number))
}

/// Returns the device number of the file system and the inode number of the file at `path`. Follows
/// symbolic links. As in [`stat_kind_and_device`], the kernel does not ask the server of a network
/// or FUSE file system.
pub fn stat_device_and_inode(path: &CStr) -> Result<(libc::dev_t, u64)> {
    let stat = statx(
        libc::AT_FDCWD,
        path,
        libc::AT_STATX_DONT_SYNC,
        libc::STATX_INO,
    )?;
    let device = makedev(stat.stx_dev_major.into(), stat.stx_dev_minor.into());
    Ok((device, stat.stx_ino))
}

fn statx(directory: RawFd, path: &CStr, flags: c_int, mask: c_uint) -> Result<libc::statx> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is NUL-terminated, and `stat` is writable for a whole `struct statx`.
    let result = unsafe { libc::statx(directory, path.as_ptr(), flags, mask, stat.as_mut_ptr()) };
    Errno::result(result)?;
    // SAFETY: the structure consists of integers, was zeroed, and then filled in.
    Ok(unsafe { stat.assume_init() })
}

/// The parent and the propagation type of a mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountRelations {
    /// The unique id of the parent: the mount on which this mount is mounted.
    pub(crate) parent_id: u64,
    /// The propagation type: `MS_SHARED`, `MS_SLAVE`, `MS_PRIVATE` or `MS_UNBINDABLE`.
    pub(crate) propagation: u64,
}

/// Queries a mount with statmount(2). `mount_id` is the unique id of the mount. Fails with ENOENT
/// if the mount is not in this process's mount namespace.
pub(crate) fn query_mount(mount_id: u64) -> Result<MountRelations> {
    let request = MountIdRequest {
        size: size_of::<MountIdRequest>() as u32,
        spare: 0,
        mount_id,
        mask: STATMOUNT_MNT_BASIC,
    };
    let mut answer = MaybeUninit::<StatmountResult>::zeroed();
    // SAFETY: the request is readable for the size that it states, and the answer is writable
    // for the size given.
    let result = unsafe {
        libc::syscall(
            SYS_STATMOUNT,
            ptr::from_ref(&request),
            answer.as_mut_ptr(),
            size_of::<StatmountResult>(),
            0,
        )
    };
    Errno::result(result)?;
    // SAFETY: the structure consists of integers, was zeroed, and then filled in.
    let answer = unsafe { answer.assume_init() };
    if answer.mask & STATMOUNT_MNT_BASIC == 0 {
        return Err(Errno::ENOSYS);
    }
    Ok(MountRelations {
        parent_id: answer.parent,
        propagation: answer.propagation,
    })
}

/// Finds out whether statmount(2) can be used: calls it with flags that the kernel must refuse, and
/// returns the error. ENOSYS means that the kernel does not have the call.
pub(crate) fn probe_statmount() -> Result<()> {
    // SAFETY: the kernel refuses the flags before it reads or writes anything.
    let result = unsafe { libc::syscall(SYS_STATMOUNT, 0, 0, 0, c_uint::MAX) };
    Errno::result(result).map(drop)
}
