//! The engines, and where each keeps its things.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::host::HostRoot;
use crate::options::Options;
use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::{containerd, crio, docker, podman};

/// A container engine, or a distribution's own way to configure one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// containerd, configured in `/etc/containerd`.
    Containerd,
    /// k3s, which makes containerd's configuration from a template.
    K3s,
    /// rke2, as k3s.
    Rke2,
    /// k0s, which reads drop-ins and merges them itself.
    K0s,
    /// microk8s, which makes containerd's configuration from a template.
    Microk8s,
    /// CRI-O.
    Crio,
    /// Docker.
    Docker,
    /// podman, run by root.
    Podman,
}

/// How a running engine comes to know a changed configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// It reads its configuration at each start of a container.
    NotNeeded,
    /// These units are restarted, those of them that run; containers go on.
    Restart(&'static [&'static str]),
    /// The unit is reloaded, which sends SIGHUP to the process in the pid file.
    Hangup {
        /// The systemd unit.
        unit: &'static str,
        /// The file with the daemon's process id.
        pid_file: &'static str,
    },
}

/// What shows whether a running engine has read its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// No daemon: what is configured is in force.
    NoDaemon,
    /// A socket that the daemon makes anew whenever it starts.
    Socket(&'static str),
    /// Docker's API, which lists the runtimes.
    DockerApi(&'static str),
}

pub(crate) struct Profile {
    pub(crate) name: &'static str,
    /// Any of these on a host means that the engine is there.
    pub(crate) signs: &'static [&'static str],
    pub(crate) reload: Reload,
    pub(crate) liveness: Liveness,
}

impl Engine {
    /// Every engine, distributions before the engine that they carry.
    pub const ALL: [Self; 8] = [
        Self::K3s,
        Self::Rke2,
        Self::K0s,
        Self::Microk8s,
        Self::Containerd,
        Self::Crio,
        Self::Docker,
        Self::Podman,
    ];

    /// The engine's name, as written on a command line.
    pub fn name(self) -> &'static str {
        self.profile().name
    }

    /// What a running engine needs to take up its configuration.
    pub fn reload(self) -> Reload {
        self.profile().reload
    }

    /// What on this host says that the engine is installed; `None`: nothing.
    pub fn detect(self, host: &HostRoot) -> Option<&'static Path> {
        let mut signs = self.profile().signs.iter().map(Path::new);
        signs.find(|sign| host.exists(sign))
    }

    /// Reads every file that a plan for this engine looks at.
    ///
    /// # Errors
    /// A file can't be read. One that does not parse is the plan's concern.
    pub fn read(self, host: &HostRoot, record: Option<&Record>) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot::default();
        for path in record.iter().flat_map(|r| r.paths()) {
            snapshot.read(host, path)?;
        }
        match self.containerd_layout() {
            Some(layout) => containerd::read(layout, host, &mut snapshot)?,
            None if self == Self::Crio => crio::read(host, &mut snapshot)?,
            None if self == Self::Docker => docker::read(host, &mut snapshot)?,
            None => podman::read(host, &mut snapshot)?,
        }
        Ok(snapshot)
    }

    /// The files that the engine should have, in the order of writing.
    pub(crate) fn desired(
        self,
        base: &Snapshot,
        options: &Options,
    ) -> Result<Vec<(PathBuf, String)>, Error> {
        match self.containerd_layout() {
            Some(layout) => containerd::desired(layout, base, options),
            None if self == Self::Crio => crio::desired(base, options),
            None if self == Self::Docker => docker::desired(base, options),
            None => podman::desired(base, options),
        }
    }

    fn containerd_layout(self) -> Option<&'static containerd::Layout> {
        match self {
            Self::Containerd => Some(&containerd::PLAIN),
            Self::K3s => Some(&containerd::K3S),
            Self::Rke2 => Some(&containerd::RKE2),
            Self::K0s => Some(&containerd::K0S),
            Self::Microk8s => Some(&containerd::MICROK8S),
            Self::Crio | Self::Docker | Self::Podman => None,
        }
    }

    pub(crate) fn profile(self) -> &'static Profile {
        match self {
            Self::Containerd => &Profile {
                name: "containerd",
                signs: &[
                    "/etc/containerd",
                    "/usr/bin/containerd",
                    "/usr/local/bin/containerd",
                    "/opt/bin/containerd",
                ],
                reload: Reload::Restart(&["containerd.service"]),
                liveness: Liveness::Socket("/run/containerd/containerd.sock"),
            },
            Self::K3s => &Profile {
                name: "k3s",
                signs: &["/var/lib/rancher/k3s/agent", "/usr/local/bin/k3s"],
                reload: Reload::Restart(&["k3s.service", "k3s-agent.service"]),
                liveness: Liveness::Socket("/run/k3s/containerd/containerd.sock"),
            },
            Self::Rke2 => &Profile {
                name: "rke2",
                signs: &["/var/lib/rancher/rke2/agent", "/usr/local/bin/rke2"],
                reload: Reload::Restart(&["rke2-server.service", "rke2-agent.service"]),
                liveness: Liveness::Socket("/run/k3s/containerd/containerd.sock"),
            },
            Self::K0s => &Profile {
                name: "k0s",
                signs: &[
                    "/etc/k0s/containerd.toml",
                    "/var/lib/k0s",
                    "/usr/local/bin/k0s",
                ],
                reload: Reload::Restart(&["k0sworker.service", "k0scontroller.service"]),
                liveness: Liveness::Socket("/run/k0s/containerd.sock"),
            },
            Self::Microk8s => &Profile {
                name: "microk8s",
                signs: &["/var/snap/microk8s/current"],
                reload: Reload::Restart(&["snap.microk8s.daemon-containerd.service"]),
                liveness: Liveness::Socket("/var/snap/microk8s/common/run/containerd.sock"),
            },
            Self::Crio => &Profile {
                name: "crio",
                signs: &["/etc/crio", "/usr/bin/crio", "/usr/local/bin/crio"],
                reload: Reload::Restart(&["crio.service"]),
                liveness: Liveness::Socket("/run/crio/crio.sock"),
            },
            Self::Docker => &Profile {
                name: "docker",
                signs: &[
                    "/usr/bin/dockerd",
                    "/usr/sbin/dockerd",
                    "/usr/local/bin/dockerd",
                    "/etc/docker",
                ],
                reload: Reload::Hangup {
                    unit: "docker.service",
                    pid_file: "/run/docker.pid",
                },
                liveness: Liveness::DockerApi("/run/docker.sock"),
            },
            Self::Podman => &Profile {
                name: "podman",
                signs: &["/usr/bin/podman", "/usr/local/bin/podman"],
                reload: Reload::NotNeeded,
                liveness: Liveness::NoDaemon,
            },
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|e| e.name() == name)
            .ok_or_else(|| Error::UnknownEngine {
                name: name.into(),
                known: Self::ALL.map(Self::name).join(", "),
            })
    }
}
