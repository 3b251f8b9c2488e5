//! The names of Linux capabilities, such as `CAP_NET_ADMIN`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::excerpt;
use crate::similar;

/// The names of all Linux capabilities, without `CAP_`. The position of a name is the capability's
/// bit (include/uapi/linux/capability.h of Linux 6.12).
const CAPABILITY_NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The prefix that capability names have in config.json and in class files. The command lines of
/// container engines (`--cap-add`) leave it out.
const CAPABILITY_PREFIX: &str = "CAP_";

/// A Linux capability, such as `CAP_NET_ADMIN` (capabilities(7)). It is stored as its position in
/// [`CAPABILITY_NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct LinuxCapability(usize);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no Linux capability: {hint}")]
pub struct LinuxCapabilityError {
    name: String,
    hint: String,
}

impl LinuxCapability {
    /// Returns the name without `CAP_`, such as `NET_ADMIN`, as it is written in `--cap-add` and in
    /// Kubernetes manifests.
    pub fn short_name(self) -> &'static str {
        CAPABILITY_NAMES[self.0]
    }
}

impl TryFrom<String> for LinuxCapability {
    type Error = LinuxCapabilityError;

    fn try_from(name: String) -> Result<Self, LinuxCapabilityError> {
        let short_name = name.strip_prefix(CAPABILITY_PREFIX);
        let index = CAPABILITY_NAMES
            .iter()
            .position(|known| short_name == Some(*known));
        index.map(LinuxCapability).ok_or_else(|| {
            let upper_case = name.to_ascii_uppercase();
            let short_name = upper_case
                .strip_prefix(CAPABILITY_PREFIX)
                .unwrap_or(&upper_case);
            let hint = match similar::find_most_similar(short_name, CAPABILITY_NAMES) {
                Some(similar) if similar == short_name => {
                    format!("write {CAPABILITY_PREFIX}{similar}")
                }
                Some(similar) => format!("did you mean {CAPABILITY_PREFIX}{similar}?"),
                None => "capabilities(7) lists all, such as CAP_NET_ADMIN".to_owned(),
            };
            LinuxCapabilityError {
                name: excerpt(&name),
                hint,
            }
        })
    }
}

impl fmt::Display for LinuxCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CAPABILITY_PREFIX}{}", self.short_name())
    }
}

impl Serialize for LinuxCapability {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_written_as_in_the_manual() {
        for (name, result) in [
            ("CAP_NET_ADMIN", Ok("NET_ADMIN")),
            ("CAP_CHECKPOINT_RESTORE", Ok("CHECKPOINT_RESTORE")),
            ("NET_ADMIN", Err("write CAP_NET_ADMIN")),
            ("cap_net_admin", Err("write CAP_NET_ADMIN")),
            ("CAP_NETADMIN", Err("did you mean CAP_NET_ADMIN?")),
            (
                "utility",
                Err("capabilities(7) lists all, such as CAP_NET_ADMIN"),
            ),
            ("", Err("capabilities(7) lists all, such as CAP_NET_ADMIN")),
        ] {
            let found = LinuxCapability::try_from(name.to_owned());
            let found = found.map(LinuxCapability::short_name);
            assert_eq!(
                found.as_ref().map_err(|e| &*e.hint),
                result.as_ref().map_err(|e| *e)
            );
        }
    }

    /// The last capability of the running kernel has the number of the last name, unless the kernel
    /// is another one than that of the names.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
    fn the_running_kernel_has_no_more_capabilities() {
        let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap");
        let last = last.ok().and_then(|text| text.trim().parse::<usize>().ok());
        assert!(
            last.is_none_or(|last| last < CAPABILITY_NAMES.len()),
            "{last:?}"
        );
    }
}
