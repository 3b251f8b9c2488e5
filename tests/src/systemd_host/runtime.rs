//! The container runtimes of the host, and how they manage cgroups.

use std::fmt;

/// A runtime's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Runc,
    Crun,
}

impl Program {
    /// Returns the path of the runtime in the host.
    pub fn path(self) -> &'static str {
        match self {
            Self::Runc => "/usr/sbin/runc",
            Self::Crun => "/usr/bin/crun",
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
        })
    }
}

/// The slice of [`Driver::SystemdInClosedSlice`].
pub(super) const CLOSED_SLICE: &str = "closed.slice";

/// The component that creates a container's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The runtime itself, without systemd.
    Cgroupfs,
    /// systemd, as a scope that the runtime requests.
    Systemd,
    /// The same, below a slice that restricts devices as well. See
    /// [`super::SystemdHost::close_slice`].
    SystemdInClosedSlice,
}

/// A runtime as an engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    pub program: Program,
    pub driver: Driver,
}

impl Runtime {
    /// The options before a subcommand: the state directory and the driver.
    pub(super) fn options(self) -> Vec<String> {
        let mut options = vec!["--root".to_string(), format!("/run/test-{}", self.program)];
        if self.driver != Driver::Cgroupfs {
            options.push("--systemd-cgroup".to_string());
        }
        options
    }

    /// The `cgroupsPath` for a container, in the form that the driver wants.
    pub fn cgroups_path(self, name: &str) -> String {
        match self.driver {
            Driver::Cgroupfs => format!("/boathook/{name}"),
            Driver::Systemd => format!("system.slice:boathook:{name}"),
            Driver::SystemdInClosedSlice => format!("{CLOSED_SLICE}:boathook:{name}"),
        }
    }

    /// The unit that a container with this cgroup is in.
    pub fn unit(self, name: &str) -> Option<String> {
        (self.driver != Driver::Cgroupfs).then(|| format!("boathook-{name}.scope"))
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
            Self::SystemdInClosedSlice => "systemd, in a closed slice",
        })
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.program, self.driver)
    }
}
