//! Replaces a device program of a cgroup without a moment in which neither the old nor the new
//! program is attached.

use nix::errno::Errno;

use super::kernel::Kernel;
use crate::sys::bpf::{BPF_F_ALLOW_MULTI, BPF_F_REPLACE};

/// Replaces the program `old_program`, which is attached to `cgroup` with `flags`, by
/// `new_program`. The call fails with ENOENT if `old_program` is no longer attached to `cgroup`.
pub(super) fn replace_program<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    flags: u32,
    old_program: &K::Program,
    new_program: &K::Program,
) -> Result<(), Errno> {
    if flags & BPF_F_ALLOW_MULTI == 0 {
        // Without BPF_F_ALLOW_MULTI only one program can be attached, and attaching another program
        // replaces it. The kernel requires the flags of the old program.
        return kernel.attach(cgroup, new_program, flags, None);
    }
    match kernel.attach(
        cgroup,
        new_program,
        BPF_F_ALLOW_MULTI | BPF_F_REPLACE,
        Some(old_program),
    ) {
        Err(Errno::EINVAL) => replace_in_two_steps(kernel, cgroup, old_program, new_program),
        result => result,
    }
}

/// Attaches `new_program` and then detaches `old_program`, because kernels before 5.6 have no
/// BPF_F_REPLACE. Between the two calls both programs apply, so that no additional device is
/// admitted.
fn replace_in_two_steps<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    old_program: &K::Program,
    new_program: &K::Program,
) -> Result<(), Errno> {
    kernel.attach(cgroup, new_program, BPF_F_ALLOW_MULTI, None)?;
    match kernel.detach(cgroup, old_program) {
        // ENOENT means that another process has detached the old program already.
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(errno) => {
            // Detaching the new program restores the previous state. If that fails, the new
            // program stays attached beside the old one, and can only deny more.
            let _ = kernel.detach(cgroup, new_program);
            Err(errno)
        }
    }
}
