//! The container runtimes of the host, and how they manage cgroups.

use std::fmt;

/// A runtime's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// runc.
    Runc,
    /// crun.
    Crun,
}

/// Who makes a container's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The runtime itself; systemd knows nothing of it.
    Cgroupfs,
    /// systemd, as a scope that the runtime asks for.
    Systemd,
}

/// A runtime as an engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Which program.
    pub program: Program,
    /// With which cgroup driver.
    pub driver: Driver,
}

impl Runtime {
    /// The program with its state directory and driver, to be completed with a
    /// subcommand.
    pub(super) fn command(self) -> Vec<&'static str> {
        let mut command = match self.program {
            Program::Runc => vec!["runc", "--root", "/run/test-runc"],
            Program::Crun => vec!["crun", "--root", "/run/test-crun"],
        };
        if self.driver == Driver::Systemd {
            command.push("--systemd-cgroup");
        }
        command
    }

    /// The `cgroupsPath` for a container, in the form that the driver wants.
    pub fn cgroups_path(self, name: &str) -> String {
        match self.driver {
            Driver::Cgroupfs => format!("/boathook/{name}"),
            Driver::Systemd => format!("system.slice:boathook:{name}"),
        }
    }

    /// The unit that a container with this cgroup is in.
    pub fn unit(self, name: &str) -> Option<String> {
        (self.driver == Driver::Systemd).then(|| format!("boathook-{name}.scope"))
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.program {
            Program::Runc => "runc",
            Program::Crun => "crun",
        })?;
        formatter.write_str(match self.driver {
            Driver::Cgroupfs => ", cgroupfs",
            Driver::Systemd => ", systemd",
        })
    }
}
