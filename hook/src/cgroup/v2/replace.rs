//! Puts a program in the place of another, with never a moment without either.

use nix::errno::Errno;

use super::kernel::Kernel;
use crate::sys::bpf::{ALLOW_MULTI, REPLACE};

/// Replaces `old`, attached to `cgroup` with `flags`, by `new`.
///
/// ENOENT means that `old` is attached there no more.
pub(super) fn replace<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    flags: u32,
    old: &K::Program,
    new: &K::Program,
) -> Result<(), Errno> {
    if flags & ALLOW_MULTI == 0 {
        // The only program there can be: attaching replaces it. The flags must
        // stay as they are, the kernel refuses any others.
        return kernel.attach(cgroup, new, flags, None);
    }
    match kernel.attach(cgroup, new, ALLOW_MULTI | REPLACE, Some(old)) {
        Err(Errno::EINVAL) => replace_in_two_steps(kernel, cgroup, old, new),
        result => result,
    }
}

/// For kernels before 5.6. In between both decide, so nothing gets wider.
fn replace_in_two_steps<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    old: &K::Program,
    new: &K::Program,
) -> Result<(), Errno> {
    kernel.attach(cgroup, new, ALLOW_MULTI, None)?;
    match kernel.detach(cgroup, old) {
        // Someone else has removed it meanwhile, and perhaps put another there.
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(errno) => {
            // Leave what was there. If even that fails there is one program
            // too many, which is safe.
            let _ = kernel.detach(cgroup, new);
            Err(errno)
        }
    }
}
