//! Replaces a device program of a cgroup. At every moment, the old program or the new program is
//! attached, so that the cgroup never allows all devices.

use nix::errno::Errno;

use super::kernel::Kernel;
use crate::sys::bpf::{BPF_F_ALLOW_MULTI, BPF_F_REPLACE};

/// Replaces `old_program`, which is attached to `cgroup` with `flags`, by `new_program`. Fails with
/// ENOENT if `old_program` is no longer attached to `cgroup`.
pub(super) fn replace_program<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    flags: u32,
    old_program: &K::Program,
    new_program: &K::Program,
) -> Result<(), Errno> {
    if flags & BPF_F_ALLOW_MULTI == 0 {
        // Without BPF_F_ALLOW_MULTI, a cgroup has only one program. If another one is attached with
        // the same flags, it replaces this program.
        return kernel.attach(cgroup, new_program, flags, None);
    }
    match kernel.attach(
        cgroup,
        new_program,
        BPF_F_ALLOW_MULTI | BPF_F_REPLACE,
        Some(old_program),
    ) {
        Err(Errno::EINVAL) => attach_then_detach(kernel, cgroup, old_program, new_program),
        result => result,
    }
}

/// Attaches `new_program` and then detaches `old_program`. This is needed before Linux 5.6, which
/// added BPF_F_REPLACE. Between the two calls, both programs apply. So no device is admitted that
/// only one of them admits.
fn attach_then_detach<K: Kernel>(
    kernel: &K,
    cgroup: &K::Cgroup,
    old_program: &K::Program,
    new_program: &K::Program,
) -> Result<(), Errno> {
    kernel.attach(cgroup, new_program, BPF_F_ALLOW_MULTI, None)?;
    match kernel.detach(cgroup, old_program) {
        // ENOENT means that another process has already detached the old program.
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(errno) => {
            // The new program is detached to restore the previous state. If this fails, both
            // programs stay attached. This can only deny more devices.
            let _ = kernel.detach(cgroup, new_program);
            Err(errno)
        }
    }
}
