//! The engines, and what is known of each: where its programs and containers
//! are, and how it reads its configuration.
//!
//! To add an engine, add it here; the compiler then names the other places.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A container engine, or a distribution's own way to configure one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// k3s, which makes containerd's configuration from a template.
    K3s,
    Rke2,
    /// k0s, which reads drop-ins and merges them itself.
    K0s,
    /// microk8s, which makes containerd's configuration from a template.
    Microk8s,
    /// containerd, configured in `/etc/containerd`.
    Containerd,
    Crio,
    Docker,
    /// podman, run by root.
    Podman,
}

/// How a running engine is made to read a changed configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// It reads its configuration at each start of a container.
    NotNeeded,
    /// These units are restarted, those of them that run; containers go on.
    Restart(&'static [&'static str]),
    /// The unit is reloaded, which sends SIGHUP to the process in the pid file.
    Hangup {
        unit: &'static str,
        /// The file with the daemon's process id.
        pid_file: &'static str,
    },
}

/// What shows whether a running engine has read its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// No daemon: what is configured is in force.
    NoDaemon,
    /// A socket that the daemon makes again whenever it starts.
    Socket(&'static str),
    /// Docker's API, which lists the runtimes.
    DockerApi,
}

pub struct Facts {
    /// Its name on a command line.
    pub name: &'static str,
    /// Its programs, one of which is on every host that has it.
    pub programs: &'static [&'static str],
    /// Where they are, besides [`PROGRAM_DIRECTORIES`].
    pub own_directories: &'static [&'static str],
    /// Where it keeps its containers' bundles by default; `*` is any one name.
    pub bundles: &'static [&'static str],
    pub reload: Reload,
    /// A command that starts a container with devices; `None`: a pod does.
    pub example: Option<&'static str>,
    pub liveness: Liveness,
}

/// The name of the runtime handler; a RuntimeClass's `handler` must be the same.
pub const HANDLER: &str = "boathook";

/// The container annotations that containerd lets through to the OCI spec.
///
/// Listed under `container_annotations` only: `pod_annotations` would let a
/// pod's author write into the same map.
pub const ANNOTATIONS: &str = "devices.boathook.dev/*";

/// Where boathook-init installs the hook. An upgrade changes what it leads to.
pub const INSTALLED_HOOK: &str = "/opt/boathook/current/bin/boathook-hook";

/// How long an engine lets the hook run, in seconds. Without a limit a hook
/// that hangs would hold its container for ever. It is more than preparing
/// devices may take (`[prepare]` of a class), and less than the 120 s that the
/// kubelet gives a container's start.
pub const HOOK_TIMEOUT: u32 = 110;

/// The environment of the hook, as an engine is to set it. runc would fill an empty
/// one with its own.
pub const HOOK_ENV: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where distributions and installers put programs (file-hierarchy(7), and
/// what snaps and immutable hosts add).
pub const PROGRAM_DIRECTORIES: [&str; 8] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/bin",
    "/snap/bin",
];

/// Every directory in which a host may have a program of an engine.
pub fn program_directories() -> impl Iterator<Item = &'static str> {
    let own = Engine::ALL
        .iter()
        .flat_map(|engine| engine.facts().own_directories);
    PROGRAM_DIRECTORIES.iter().chain(own).copied()
}

/// The OCI runtimes that an engine, or a user, may call.
pub const RUNTIMES: [&str; 3] = ["runc", "crun", "youki"];

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

    pub const fn facts(self) -> &'static Facts {
        match self {
            Self::K3s => &Facts {
                name: "k3s",
                programs: &["k3s"],
                own_directories: &["/var/lib/rancher/k3s/data/current/bin"],
                bundles: &["/run/k3s/containerd/io.containerd.runtime.v2.task/*/*"],
                reload: Reload::Restart(&["k3s.service", "k3s-agent.service"]),
                example: None,
                liveness: Liveness::Socket("/run/k3s/containerd/containerd.sock"),
            },
            Self::Rke2 => &Facts {
                name: "rke2",
                programs: &["rke2"],
                own_directories: &["/opt/rke2/bin", "/var/lib/rancher/rke2/bin"],
                bundles: &["/run/k3s/containerd/io.containerd.runtime.v2.task/*/*"],
                reload: Reload::Restart(&["rke2-server.service", "rke2-agent.service"]),
                example: None,
                liveness: Liveness::Socket("/run/k3s/containerd/containerd.sock"),
            },
            Self::K0s => &Facts {
                name: "k0s",
                programs: &["k0s"],
                own_directories: &["/var/lib/k0s/bin"],
                bundles: &["/run/k0s/containerd/io.containerd.runtime.v2.task/*/*"],
                reload: Reload::Restart(&["k0sworker.service", "k0scontroller.service"]),
                example: None,
                liveness: Liveness::Socket("/run/k0s/containerd.sock"),
            },
            Self::Microk8s => &Facts {
                name: "microk8s",
                programs: &["microk8s"],
                own_directories: &[],
                bundles: &[
                    "/var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task/*/*",
                ],
                reload: Reload::Restart(&["snap.microk8s.daemon-containerd.service"]),
                example: None,
                liveness: Liveness::Socket("/var/snap/microk8s/common/run/containerd.sock"),
            },
            Self::Containerd => &Facts {
                name: "containerd",
                programs: &["containerd"],
                own_directories: &[],
                bundles: &["/run/containerd/io.containerd.runtime.v2.task/*/*"],
                reload: Reload::Restart(&["containerd.service"]),
                example: None,
                liveness: Liveness::Socket("/run/containerd/containerd.sock"),
            },
            Self::Crio => &Facts {
                name: "crio",
                programs: &["crio"],
                own_directories: &[],
                bundles: &[
                    "/run/containers/storage/overlay-containers/*/userdata",
                    "/var/lib/containers/storage/overlay-containers/*/userdata",
                ],
                reload: Reload::Restart(&["crio.service"]),
                example: None,
                liveness: Liveness::Socket("/run/crio/crio.sock"),
            },
            Self::Docker => &Facts {
                name: "docker",
                programs: &["dockerd"],
                own_directories: &[],
                bundles: &["/run/docker/containerd/daemon/io.containerd.runtime.v2.task/*/*"],
                reload: Reload::Hangup {
                    unit: "docker.service",
                    pid_file: "/run/docker.pid",
                },
                example: Some("docker run --rm --runtime boathook -e VARIABLE=all IMAGE"),
                liveness: Liveness::DockerApi,
            },
            Self::Podman => &Facts {
                name: "podman",
                programs: &["podman"],
                own_directories: &[],
                bundles: &[
                    "/run/containers/storage/overlay-containers/*/userdata",
                    "/var/lib/containers/storage/overlay-containers/*/userdata",
                ],
                reload: Reload::NotNeeded,
                example: Some("podman run --rm -e VARIABLE=all IMAGE"),
                liveness: Liveness::NoDaemon,
            },
        }
    }

    /// The engine's name, as written on a command line.
    pub fn name(self) -> &'static str {
        self.facts().name
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
