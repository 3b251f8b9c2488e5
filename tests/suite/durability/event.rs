//! What happens to a running container: the columns of the table.

use std::fmt;

use anyhow::Result;
use harness::systemd_host::{Container, SystemdHost};
use serde_json::json;

/// Something that makes systemd or the runtime think about a container's
/// resources again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    DaemonReload,
    DaemonReexec,
    SetProperty,
    RuntimeUpdate,
    ContainerRestart,
}

impl Event {
    pub(super) const ALL: [Self; 5] = [
        Self::DaemonReload,
        Self::DaemonReexec,
        Self::SetProperty,
        Self::RuntimeUpdate,
        Self::ContainerRestart,
    ];

    /// Makes it happen to a container, which is in `unit` if systemd made its
    /// cgroup. Says `false` if it cannot happen to this one.
    pub(super) fn happen(
        self,
        host: &SystemdHost,
        container: &Container<'_>,
        unit: Option<&str>,
    ) -> Result<bool> {
        match self {
            Self::DaemonReload => host.run("systemctl", &["daemon-reload"]).map(drop)?,
            Self::DaemonReexec => {
                host.run("systemctl", &["daemon-reexec"])?;
                host.wait_until_running()?;
            }
            Self::SetProperty => {
                let Some(unit) = unit else { return Ok(false) };
                // The first makes systemd look at the unit's cgroup; the second,
                // which the container has already, at its devices.
                let properties = ["TasksMax=4096", "DeviceAllow=/dev/zero rw"];
                let command = [&["set-property", "--runtime", unit], &properties[..]].concat();
                host.run("systemctl", &command)?;
            }
            Self::RuntimeUpdate => container.update(&if host.has_cpu_controller()? {
                json!({"cpu": {"shares": 512}})
            } else {
                // Nothing to be changed, in the same way.
                json!({})
            })?,
            Self::ContainerRestart => container.restart()?,
        }
        Ok(true)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::DaemonReload => "daemon-reload",
            Self::DaemonReexec => "daemon-reexec",
            Self::SetProperty => "set-property",
            Self::RuntimeUpdate => "runtime update",
            Self::ContainerRestart => "container restart",
        })
    }
}
