//! The container runtimes of a host with systemd, and the ways in which they manage cgroups.

use std::fmt;

/// The program of a runtime.
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

/// The slice below which [`Driver::SystemdInClosedSlice`] puts containers.
pub(super) const CLOSED_SLICE: &str = "closed.slice";

/// The component that creates a container's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The runtime creates the cgroup itself, without systemd.
    Cgroupfs,
    /// systemd creates the cgroup of a scope that the runtime requests.
    Systemd,
    /// systemd creates the scope below a slice that restricts devices, too (see
    /// [`super::SystemdHost::close_slice`]).
    SystemdInClosedSlice,
}

/// A runtime as an engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    pub program: Program,
    pub driver: Driver,
}

impl Runtime {
    /// Returns the options of the runtime before a subcommand: its state directory and the driver.
    pub(super) fn options(self) -> Vec<String> {
        let mut options = vec!["--root".to_string(), format!("/run/test-{}", self.program)];
        if self.driver != Driver::Cgroupfs {
            options.push("--systemd-cgroup".to_string());
        }
        options
    }

    /// Returns the `cgroupsPath` of a container in the form that the driver requires.
    pub fn cgroups_path(self, name: &str) -> String {
        match self.driver {
            Driver::Cgroupfs => format!("/boathook/{name}"),
            Driver::Systemd => format!("system.slice:boathook:{name}"),
            Driver::SystemdInClosedSlice => format!("{CLOSED_SLICE}:boathook:{name}"),
        }
    }

    /// Returns the name of the systemd unit of a container with this cgroup, if it has one.
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
