//! Queries about a single mount, which avoid reading the list of all mounts: `statx` returns
//! the mount's id, `statmount` (Linux 6.8) the rest.

use std::ffi::CStr;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;

use libc::{c_int, c_long, c_uint};
use nix::Result;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, makedev};

/// Selects the id that a mount has in `/proc/self/mountinfo`. The kernel may reuse the id when
/// the mount is gone.
pub(crate) const MOUNT_ID: c_uint = libc::STATX_MNT_ID;

/// Selects the unique id, by which `statmount` finds a mount (Linux 6.8). It is never reused.
pub(crate) const UNIQUE_MOUNT_ID: c_uint = libc::STATX_MNT_ID_UNIQUE;

/// The number of `statmount`. It is the same on all architectures that use the common numbers
/// of `include/uapi/asm-generic/unistd.h`.
const SYS_STATMOUNT: c_long = 457;

/// `STATMOUNT_MNT_BASIC`: requests ids, attributes and propagation.
const MOUNT_BASIC: u64 = 2;

/// `struct mnt_id_req` of `include/uapi/linux/mount.h`.
#[repr(C)]
struct MountIdRequest {
    size: u32,
    spare: u32,
    mount: u64,
    mask: u64,
}

/// The beginning of `struct statmount` of `include/uapi/linux/mount.h`.
#[repr(C)]
struct StatmountAnswer {
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
    /// Space for the remaining fields. The kernel fills as many bytes as the caller passes.
    rest: [u64; 54],
}

const _: () =
    assert!(size_of::<StatmountAnswer>() == 512 && offset_of!(StatmountAnswer, propagation) == 72);

/// Returns the id of the mount that contains `file`. `which` is [`MOUNT_ID`] or
/// [`UNIQUE_MOUNT_ID`]. Returns `None` if the kernel does not support that id.
pub(crate) fn mount_id(file: impl AsFd, which: c_uint) -> Result<Option<u64>> {
    let stat = statx(file.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH, which)?;
    Ok((stat.stx_mask & which != 0).then_some(stat.stx_mnt_id))
}

/// Returns the type and device number of the file at `path`, and follows symbolic links.
/// `AT_STATX_DONT_SYNC` keeps the kernel from asking the server of a network or FUSE file
/// system, which might never answer.
pub(crate) fn kind_and_device(path: &CStr) -> Result<(SFlag, libc::dev_t)> {
    let flags = libc::AT_STATX_DONT_SYNC;
    let stat = statx(libc::AT_FDCWD, path, flags, libc::STATX_TYPE)?;
    let kind = SFlag::from_bits_truncate(stat.stx_mode.into()) & SFlag::S_IFMT;
    let number = makedev(stat.stx_rdev_major.into(), stat.stx_rdev_minor.into());
    Ok((kind, number))
}

/// Returns the file system's device number and the inode number of the file at `path`, and follows
/// symbolic links. Like [`kind_and_device`], it does not ask the server of a file system.
pub(crate) fn device_and_inode(path: &CStr) -> Result<(libc::dev_t, u64)> {
    let stat = statx(
        libc::AT_FDCWD,
        path,
        libc::AT_STATX_DONT_SYNC,
        libc::STATX_INO,
    )?;
    let device = makedev(stat.stx_dev_major.into(), stat.stx_dev_minor.into());
    Ok((device, stat.stx_ino))
}

fn statx(directory: RawFd, path: &CStr, flags: c_int, wanted: c_uint) -> Result<libc::statx> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is NUL-terminated, and `stat` is writable for a whole `struct statx`.
    let result = unsafe { libc::statx(directory, path.as_ptr(), flags, wanted, stat.as_mut_ptr()) };
    Errno::result(result)?;
    // SAFETY: the structure consists of integers, was zeroed, and then filled in.
    Ok(unsafe { stat.assume_init() })
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MountRelations {
    /// The unique id of the parent: the mount on which this one is mounted.
    pub(crate) parent: u64,
    /// The propagation: `MS_SHARED`, `MS_SLAVE`, `MS_PRIVATE` or `MS_UNBINDABLE`.
    pub(crate) propagation: u64,
}

/// Queries the mount with the unique id `mount`. The call fails with `ENOENT` if the mount is
/// not in this mount namespace.
pub(crate) fn query_mount(mount: u64) -> Result<MountRelations> {
    let request = MountIdRequest {
        size: size_of::<MountIdRequest>() as u32,
        spare: 0,
        mount,
        mask: MOUNT_BASIC,
    };
    let mut answer = MaybeUninit::<StatmountAnswer>::zeroed();
    // SAFETY: the request is readable for the size that it states, and the answer is writable
    // for the size given.
    let result = unsafe {
        libc::syscall(
            SYS_STATMOUNT,
            ptr::from_ref(&request),
            answer.as_mut_ptr(),
            size_of::<StatmountAnswer>(),
            0,
        )
    };
    Errno::result(result)?;
    // SAFETY: the structure consists of integers, was zeroed, and then filled in.
    let answer = unsafe { answer.assume_init() };
    if answer.mask & MOUNT_BASIC == 0 {
        return Err(Errno::ENOSYS);
    }
    Ok(MountRelations {
        parent: answer.parent,
        propagation: answer.propagation,
    })
}

/// Calls `statmount` with flags that it must refuse, and returns the error.
pub(crate) fn probe() -> Result<()> {
    // SAFETY: the kernel refuses the flags before it reads or writes anything.
    let result = unsafe { libc::syscall(SYS_STATMOUNT, 0, 0, 0, c_uint::MAX) };
    Errno::result(result).map(drop)
}
