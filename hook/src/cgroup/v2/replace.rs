//! Replaces a program without a moment in which no program is attached.

use nix::errno::Errno;

use super::kernel::Kernel;
use crate::sys::bpf::{ALLOW_MULTI, REPLACE};

/// Replaces `old`, which is attached to `cgroup` with `flags`, by `new`. Fails with ENOENT if
/// `old` is no longer attached there.
pub(super) fn replace<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    flags: u32,
    old: &K::Program,
    new: &K::Program,
) -> Result<(), Errno> {
    if flags & ALLOW_MULTI == 0 {
        // Without this flag only one program can be attached, and attaching another program
        // replaces it. The kernel accepts only the same flags again.
        return kernel.attach(cgroup, new, flags, None);
    }
    match kernel.attach(cgroup, new, ALLOW_MULTI | REPLACE, Some(old)) {
        Err(Errno::EINVAL) => replace_in_two_steps(kernel, cgroup, old, new),
        result => result,
    }
}

/// Attaches `new` before it detaches `old`, for kernels before 5.6. Both apply in between, so
/// that nothing more is admitted.
fn replace_in_two_steps<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    old: &K::Program,
    new: &K::Program,
) -> Result<(), Errno> {
    kernel.attach(cgroup, new, ALLOW_MULTI, None)?;
    match kernel.detach(cgroup, old) {
        // The old program was detached concurrently, and perhaps replaced.
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(errno) => {
            // The previous state is restored. If that fails, an additional program stays
            // attached, which can only deny more.
            let _ = kernel.detach(cgroup, new);
            Err(errno)
        }
    }
}
