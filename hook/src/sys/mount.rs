//! Creates and changes mounts with the system calls that take descriptors instead of paths. These
//! are `open_tree`, `move_mount`, `fsopen`, `fsconfig` and `fsmount` (Linux 5.2), and
//! `mount_setattr` (Linux 5.12).

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_long, c_uint};
use nix::Result;
use nix::errno::Errno;

/// Returns a detached copy of the mount that contains `file`, as for a bind mount: `file` is the
/// root of the copy. If `is_recursive` is true, the mounts below `file` are copied as well.
pub(crate) fn open_tree_clone(file: impl AsFd, is_recursive: bool) -> Result<OwnedFd> {
    let mut flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH.cast_unsigned();
    if is_recursive {
        flags |= libc::AT_RECURSIVE.cast_unsigned();
    }
    // SAFETY: the path is a NUL-terminated constant; the kernel reads nothing else.
    let result = unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
        )
    };
    into_descriptor(result)
}

/// Attaches the detached mount `mount` at `target`, an open file or directory. No path is resolved,
/// so no symbolic link can redirect the mount.
pub(crate) fn move_mount(mount: impl AsFd, target: impl AsFd) -> Result<()> {
    move_mount_raw(mount.as_fd().as_raw_fd(), target.as_fd().as_raw_fd())
}

/// Sets the `MOUNT_ATTR_*` bits `attributes` of a mount. `mount` is its open root. Also sets the
/// propagation type, such as `MS_PRIVATE`, unless `propagation` is 0. If `is_recursive` is true,
/// the mounts below this mount are changed as well.
pub(crate) fn set_attributes(
    mount: impl AsFd,
    is_recursive: bool,
    attributes: u64,
    propagation: u64,
) -> Result<()> {
    mount_setattr_raw(
        mount.as_fd().as_raw_fd(),
        is_recursive,
        attributes,
        propagation,
    )
}

/// Opens a context in which a file system of the type `fs_type`, such as `tmpfs`, can be created.
pub(crate) fn fsopen(fs_type: &CStr) -> Result<OwnedFd> {
    into_descriptor(fsopen_raw(fs_type, libc::FSOPEN_CLOEXEC))
}

/// Sets the option `key` of the file system to `value`. `context` is a descriptor from [`fsopen`].
pub(crate) fn fsconfig_string(context: impl AsFd, key: &CStr, value: &CStr) -> Result<()> {
    let fd = context.as_fd().as_raw_fd();
    // SAFETY: both strings are NUL-terminated and outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            fd,
            libc::FSCONFIG_SET_STRING,
            key.as_ptr(),
            value.as_ptr(),
            0,
        )
    };
    check_result(result)
}

/// Creates a file system with the options that were set in `context`, a descriptor from [`fsopen`].
pub(crate) fn fsconfig_create(context: impl AsFd) -> Result<()> {
    fsconfig_create_raw(context.as_fd().as_raw_fd())
}

/// Creates a detached mount of the file system in `context`, with the `MOUNT_ATTR_*` bits
/// `attributes`. Returns an `O_PATH` handle on the root of the mount.
pub(crate) fn fsmount(context: impl AsFd, attributes: u64) -> Result<OwnedFd> {
    let attributes = c_uint::try_from(attributes).map_err(|_| Errno::EINVAL)?;
    into_descriptor(fsmount_raw(context.as_fd().as_raw_fd(), attributes))
}

/// Finds out whether `open_tree` can be used: calls it with arguments that the kernel must refuse,
/// and returns the error. ENOSYS means that the kernel does not have the call. EPERM means that a
/// seccomp filter forbids it.
pub(crate) fn probe_open_tree() -> Result<()> {
    let flags = libc::OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the path is a NUL-terminated constant, and no descriptor is -1.
    check_result(unsafe { libc::syscall(libc::SYS_open_tree, -1, c"".as_ptr(), flags) })
}

/// Calls `move_mount` with arguments that the kernel must refuse. The returned error has the
/// meaning as for [`probe_open_tree`].
pub(crate) fn probe_move_mount() -> Result<()> {
    move_mount_raw(-1, -1)
}

/// Calls `mount_setattr` with an empty change, and returns the error. For an empty change, the
/// kernel needs no valid descriptor, but still checks the privilege to mount.
pub(crate) fn probe_mount_setattr() -> Result<()> {
    mount_setattr_raw(-1, false, 0, 0)
}

/// Calls `fsopen`, `fsconfig` and `fsmount` with arguments that the kernel must refuse. Returns
/// their errors in this order, with the meaning as for [`probe_open_tree`].
pub(crate) fn probe_fs_calls() -> [Result<()>; 3] {
    [
        check_result(fsopen_raw(c"", c_uint::MAX)),
        fsconfig_create_raw(-1),
        check_result(fsmount_raw(-1, 0)),
    ]
}

fn move_mount_raw(mount: RawFd, target: RawFd) -> Result<()> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    let empty = c"".as_ptr();
    // SAFETY: both paths are a NUL-terminated constant; the kernel refuses a descriptor that
    // is not open.
    check_result(unsafe { libc::syscall(libc::SYS_move_mount, mount, empty, target, empty, flags) })
}

fn mount_setattr_raw(
    mount: RawFd,
    is_recursive: bool,
    attr_set: u64,
    propagation: u64,
) -> Result<()> {
    let attr = libc::mount_attr {
        attr_set,
        attr_clr: 0,
        propagation,
        userns_fd: 0,
    };
    let mut flags = libc::AT_EMPTY_PATH;
    if is_recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the path is a NUL-terminated constant, and `attr` is readable for the size
    // given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            c"".as_ptr(),
            flags,
            ptr::from_ref(&attr),
            size_of_val(&attr),
        )
    };
    check_result(result)
}

fn fsopen_raw(fs_type: &CStr, flags: c_uint) -> c_long {
    // SAFETY: the type is NUL-terminated and outlives the call.
    unsafe { libc::syscall(libc::SYS_fsopen, fs_type.as_ptr(), flags) }
}

fn fsconfig_create_raw(context: RawFd) -> Result<()> {
    let null = ptr::null::<libc::c_char>();
    // SAFETY: this command takes neither key nor value; both must be null.
    let result = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context,
            libc::FSCONFIG_CMD_CREATE,
            null,
            null,
            0,
        )
    };
    check_result(result)
}

fn fsmount_raw(context: RawFd, attributes: c_uint) -> c_long {
    // SAFETY: the arguments are plain numbers; the kernel refuses a descriptor that is not
    // open.
    unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context,
            libc::FSMOUNT_CLOEXEC,
            attributes,
        )
    }
}

fn check_result(result: c_long) -> Result<()> {
    Errno::result(result).map(drop)
}

fn into_descriptor(result: c_long) -> Result<OwnedFd> {
    let fd = c_int::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just opened this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
