//! Replaces a program, so that at any time one of them is attached.

use nix::errno::Errno;

use super::kernel::Kernel;
use crate::sys::bpf::{ALLOW_MULTI, REPLACE};

/// Replaces `old`, attached to `cgroup` with `flags`, by `new`.
///
/// ENOENT: `old` is no longer attached there.
pub(super) fn replace<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    flags: u32,
    old: &K::Program,
    new: &K::Program,
) -> Result<(), Errno> {
    if flags & ALLOW_MULTI == 0 {
        // Only one program can be attached: attaching replaces it. The kernel
        // rejects other flags than the old ones.
        return kernel.attach(cgroup, new, flags, None);
    }
    match kernel.attach(cgroup, new, ALLOW_MULTI | REPLACE, Some(old)) {
        Err(Errno::EINVAL) => replace_in_two_steps(kernel, cgroup, old, new),
        result => result,
    }
}

/// For kernels before 5.6. In between both apply, so that nothing more is
/// admitted.
fn replace_in_two_steps<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    old: &K::Program,
    new: &K::Program,
) -> Result<(), Errno> {
    kernel.attach(cgroup, new, ALLOW_MULTI, None)?;
    match kernel.detach(cgroup, old) {
        // It was removed concurrently, and perhaps replaced.
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(errno) => {
            // Restore the previous state. If this fails, an additional program
            // is attached, which is safe.
            let _ = kernel.detach(cgroup, new);
            Err(errno)
        }
    }
}
