//! The privileges that device rules require.

use caps::{CapSet, Capability};
use nix::sys::stat::stat;

use crate::container::INITIAL_USER_NAMESPACE;

/// Whether this process may read and replace device programs.
pub(super) fn for_programs() -> bool {
    has_capabilities(&[Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN])
}

/// Whether this process has `capabilities` on the host, and not in a user namespace
/// alone: EPERM then has another cause, and must not be taken for a rootless runtime.
pub(super) fn has_capabilities(capabilities: &[Capability]) -> bool {
    let held = |capability: &Capability| {
        caps::has_cap(None, CapSet::Effective, *capability).unwrap_or(false)
    };
    capabilities.iter().all(held)
        && stat("/proc/self/ns/user").is_ok_and(|found| found.st_ino == INITIAL_USER_NAMESPACE)
}
