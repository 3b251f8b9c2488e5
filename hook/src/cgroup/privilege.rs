//! Checks whether this process has the capabilities to change device rules. The answer shows
//! whether an EPERM of the kernel is expected.

use caps::{CapSet, Capability};
use nix::sys::stat::stat;

use crate::container::INITIAL_USER_NAMESPACE_INODE;

/// Reports whether this process has the capabilities that the kernel requires for reading and
/// replacing device programs.
pub(super) fn can_change_programs() -> bool {
    has_capabilities(&[Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN])
}

/// Reports whether this process has `capabilities` in the initial user namespace.
///
/// If the result is false, EPERM is expected: a process of a rootless runtime has capabilities only
/// in its own user namespace. If the result is true, EPERM has another cause, such as a security
/// module, and must be reported.
pub(super) fn has_capabilities(capabilities: &[Capability]) -> bool {
    let has_capability = |capability: &Capability| {
        caps::has_cap(None, CapSet::Effective, *capability).unwrap_or(false)
    };
    capabilities.iter().all(has_capability)
        && stat("/proc/self/ns/user")
            .is_ok_and(|namespace| namespace.st_ino == INITIAL_USER_NAMESPACE_INODE)
}
