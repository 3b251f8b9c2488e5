//! Drops the privileges of the hook's own process before it reads any input, and finds the host's
//! user for whom the process runs.

use std::fs;

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::geteuid;

use crate::container::{IdMap, ReaderNamespace};
use crate::sys;

/// The capabilities that the hook keeps. These steps need them:
///
/// - entering a mount namespace, and mounting: `SYS_ADMIN`, `SYS_CHROOT`
/// - opening the namespace of a process that has more capabilities: `SYS_PTRACE`
/// - creating files in a root that belongs to other users: `DAC_OVERRIDE`, `DAC_READ_SEARCH`,
///   `FOWNER`, `CHOWN`, and `SETUID` and `SETGID` for the file system ids of a mapped root
/// - creating device nodes: `MKNOD`
/// - device programs on cgroup v2: `NET_ADMIN`, and `SYS_RESOURCE` for their memory before
///   Linux 5.11; network interfaces: `NET_ADMIN`
const REQUIRED_CAPABILITIES: [Capability; 12] = [
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

/// Clears the environment, closes all file descriptors except stdin, stdout and stderr, and drops
/// all capabilities except [`REQUIRED_CAPABILITIES`].
pub fn drop_privileges() -> Result<(), caps::errors::CapsError> {
    sys::process::clear_environment();
    sys::process::close_inherited_descriptors();
    drop_capabilities()
}

/// Clears the environment and drops capabilities like [`drop_privileges`], but keeps all file
/// descriptors open.
pub fn drop_privileges_keep_fds() -> Result<(), caps::errors::CapsError> {
    sys::process::clear_environment();
    drop_capabilities()
}

fn drop_capabilities() -> Result<(), caps::errors::CapsError> {
    // By default, SIGXFSZ kills a process that writes beyond its file size limit (RLIMIT_FSIZE). If
    // the signal is ignored, the write fails with an error that can be reported. An error of this
    // call has no other effect than the default, so it is ignored.
    let _ = sys::process::ignore_file_size_signal();
    let permitted_capabilities = caps::read(None, CapSet::Permitted)?;
    let retained_capabilities: CapsHashSet = REQUIRED_CAPABILITIES
        .into_iter()
        .filter(|cap| permitted_capabilities.contains(cap))
        .collect();
    caps::set(None, CapSet::Effective, &retained_capabilities)?;
    caps::set(None, CapSet::Permitted, &retained_capabilities)?;
    caps::clear(None, CapSet::Inheritable)
}

/// Returns the id that the user of this process has on the host. In the user namespace of a
/// rootless engine, this process runs as root, and the id map says which host user root is. Returns
/// `None` if the id map cannot be read.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub fn host_uid() -> Option<u32> {
    let uid_map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let find_host_uid_of_root =
        || IdMap::parse(&uid_map).and_then(|map| map.find_root_id(ReaderNamespace::Ancestor));
    match geteuid().as_raw() {
        0 => find_host_uid_of_root().ok(),
        uid => Some(uid),
    }
}
