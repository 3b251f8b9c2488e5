//! The privileges that device rules require.

use std::fs;
use std::os::unix::fs::MetadataExt;

use caps::{CapSet, Capability};

use crate::container::INITIAL_USER_NAMESPACE;

/// Whether this process has `capabilities` on the host, and not in a user namespace
/// alone: EPERM then has another cause, and must not be taken for a rootless runtime.
pub(super) fn has(capabilities: &[Capability]) -> bool {
    let held = |capability: &Capability| {
        caps::has_cap(None, CapSet::Effective, *capability).unwrap_or(false)
    };
    let is_initial = |namespace: fs::Metadata| namespace.ino() == INITIAL_USER_NAMESPACE;
    capabilities.iter().all(held) && fs::metadata("/proc/self/ns/user").is_ok_and(is_initial)
}
