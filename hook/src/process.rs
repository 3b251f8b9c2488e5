//! The hook's own process: whose it is, and that it gives up what it does not need before it
//! reads anything.

use std::fs;

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::geteuid;

use crate::container::{IdMap, Reader};
use crate::sys;

/// What the steps need, and nothing else:
/// entering a mount namespace and mounting (`SYS_ADMIN`, `SYS_CHROOT`), opening
/// the namespace of a process with more capabilities than ours (`SYS_PTRACE`),
/// creating files in a root that belongs to other users (`DAC_OVERRIDE`,
/// `DAC_READ_SEARCH`, `FOWNER`, `CHOWN`, and `SETUID` and `SETGID` for the
/// file system ids of a mapped root), device nodes (`MKNOD`), device programs
/// on cgroup v2 (`NET_ADMIN`), and memory for
/// programs before Linux 5.11 (`SYS_RESOURCE`).
const NEEDED: [Capability; 12] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_CHOWN,
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_MKNOD,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_SYS_RESOURCE,
];

/// Gives up the environment, every descriptor beyond stdio and every
/// capability that the steps do not need.
pub(crate) fn confine() -> Result<(), caps::errors::CapsError> {
    sys::process::clear_environment();
    sys::process::close_inherited_descriptors();
    give_up()
}

/// Gives up the environment and capabilities, of a process that has opened what it needs.
pub(crate) fn confine_opened() -> Result<(), caps::errors::CapsError> {
    sys::process::clear_environment();
    give_up()
}

fn give_up() -> Result<(), caps::errors::CapsError> {
    // Of a limit that cannot be set aside a failed write is the better result.
    let _ = sys::process::ignore_file_size_signal();
    let held = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = NEEDED
        .into_iter()
        .filter(|cap| held.contains(cap))
        .collect();
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)
}

/// The user of the host who runs this: root in a rootless engine's user namespace is the user
/// of that engine.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(crate) fn user() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let outside = || IdMap::parse(&map).and_then(|map| map.root(Reader::Outside));
    match geteuid().as_raw() {
        0 => outside().ok(),
        uid => Some(uid),
    }
}
