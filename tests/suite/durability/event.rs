//! The events of a running container: the columns of the tables.

use std::fmt;
use std::fs;

use anyhow::Result;
use harness::demo_host::DemoHost;
use harness::systemd_host::SystemdHost;

use super::running_container::RunningContainer;
use crate::live::follow::tell;

/// Something that makes systemd, the runtime or the engine think about a
/// container's resources again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    DaemonReload,
    DaemonReexec,
    SetProperty,
    RuntimeUpdate,
    CriUpdate,
    EngineRestart,
    ContainerRestart,
    /// The device comes back with another number.
    Replugged,
}

impl Event {
    /// Makes it happen to a container. Says `false` if it cannot happen to this
    /// one, because it is in no unit of systemd's.
    pub(super) fn happen(
        self,
        host: &SystemdHost,
        demo: &DemoHost,
        container: &dyn RunningContainer,
    ) -> Result<bool> {
        match self {
            Self::DaemonReload => host.run("systemctl", &["daemon-reload"]).map(drop)?,
            Self::DaemonReexec => {
                host.run("systemctl", &["daemon-reexec"])?;
                host.wait_until_running()?;
            }
            Self::SetProperty => {
                let Some(unit) = container.unit() else {
                    return Ok(false);
                };
                // The first makes systemd look at the unit's cgroup; the second,
                // which the container has already, at its devices.
                let properties = ["TasksMax=4096", "DeviceAllow=/dev/zero rw"];
                let command = [&["set-property", "--runtime", &unit], &properties[..]].concat();
                host.run("systemctl", &command)?;
            }
            Self::RuntimeUpdate | Self::CriUpdate => {
                // Where nothing can be changed, nothing is, in the same way.
                let shares = host.has_cpu_controller()?.then_some(512);
                container.update(shares)?;
            }
            Self::EngineRestart => container.restart_engine()?,
            Self::ContainerRestart => container.restart()?,
            Self::Replugged => {
                let node = demo.node(3);
                fs::remove_file(&node)?;
                demo.device(DemoHost::UNLIKE).make_node(&node)?;
                tell();
            }
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
            Self::CriUpdate => "UpdateContainerResources",
            Self::EngineRestart => "engine restart",
            Self::ContainerRestart => "container restart",
            Self::Replugged => "replugged",
        })
    }
}
