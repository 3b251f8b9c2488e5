//! `statx`, for the one field that `fstat` does not have.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use nix::Result;
use nix::errno::Errno;

/// The id of the mount that `file` lies in, as in the first field of
/// `/proc/self/mountinfo`. None before Linux 5.8.
pub(crate) fn mount_id(file: impl AsFd) -> Result<Option<u64>> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is a NUL-terminated constant, and `stat` is writable
    // for a whole `struct statx`.
    let result = unsafe {
        libc::statx(
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_MNT_ID,
            stat.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    // SAFETY: made of integers, zeroed at first, and then filled in.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.stx_mask & libc::STATX_MNT_ID != 0).then_some(stat.stx_mnt_id))
}
