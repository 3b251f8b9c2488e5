//! The table of the supported engines: the paths of their programs and bundles, and how they read
//! their configurations.
//!
//! To support another engine, add it to the enum [`Engine`]. The compiler then reports the other
//! code that must be changed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A container engine, or a distribution that configures an engine in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// k3s, which generates containerd's configuration from a template.
    K3s,
    Rke2,
    /// k0s, which reads drop-ins and merges them itself.
    K0s,
    /// microk8s, which generates containerd's configuration from a template.
    Microk8s,
    /// containerd, configured in `/etc/containerd`.
    Containerd,
    Crio,
    Docker,
    /// podman, run by root.
    Podman,
}

/// The method that makes a running engine read its configuration again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadMethod {
    /// Nothing is needed, because the engine reads its configuration each time it starts a
    /// container.
    NotNeeded,
    /// systemd restarts those units of the list that exist and are running (`systemctl
    /// try-restart`). The containers continue to run.
    Restart(&'static [&'static str]),
    /// systemd reloads the unit. Without systemd, SIGHUP is sent to the process whose pid is in
    /// `pid_file`.
    Hangup {
        unit: &'static str,
        /// The path of the file with the daemon's process id, such as `/run/docker.pid`.
        pid_file: &'static str,
    },
}

/// The method that shows whether a running engine has read its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadCheck {
    /// The engine has no daemon, so a changed configuration takes effect immediately.
    NoDaemon,
    /// The age of this socket shows when the daemon was started, because the daemon creates the
    /// socket at each start.
    Socket(&'static str),
    /// The API of Docker, which lists the runtimes that dockerd has loaded.
    DockerApi,
}

/// The fixed properties of an engine: its name, its paths, and how to reload it.
pub struct EngineProperties {
    /// The name of the engine on the command line.
    pub name: &'static str,
    /// The names of the engine's programs. A host with the engine has at least one of them.
    pub programs: &'static [&'static str],
    /// More directories that may contain the programs, in addition to [`PROGRAM_DIRECTORIES`].
    pub extra_program_dirs: &'static [&'static str],
    /// The default paths of the engine's bundles, as patterns. `*` stands for any single component.
    pub bundle_patterns: &'static [&'static str],
    pub reload_method: ReloadMethod,
    /// An example for the operator: a command that starts a container with devices. `None` means
    /// that only pods request devices from this engine.
    pub example_command: Option<&'static str>,
    pub load_check: LoadCheck,
}

/// The name of Boathook's runtime handler. A RuntimeClass for Boathook has this name as its
/// `handler`.
pub const RUNTIME_HANDLER_NAME: &str = "boathook";

/// The pattern of the container annotations that containerd copies to the OCI specification.
///
/// Only the setting `container_annotations` contains the pattern. If `pod_annotations` contained
/// it, the author of a pod could set these annotations.
pub const ANNOTATION_PATTERN: &str = "devices.boathook.dev/*";

/// The path of the hook after an installation. `current` is a symbolic link to the installed
/// version, so an upgrade does not change the path.
pub const INSTALLED_HOOK_PATH: &str = "/opt/boathook/current/bin/boathook-hook";

/// The time limit in seconds that engines set for the hook. Without a limit, a hook that hangs
/// would block its container forever. The limit is longer than the preparation of devices
/// (`[prepare]` of a class) may take, and shorter than the kubelet's limit of 120 s for the start
/// of a container.
pub const HOOK_TIMEOUT_SECONDS: u32 = 110;

/// The environment that engines set for the hook. It is not empty, because runc would replace an
/// empty environment with its own environment.
pub const HOOK_ENVIRONMENT: &str =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The directories in which distributions and installers put programs. They are the directories of
/// file-hierarchy(7), and those of snaps and of immutable hosts.
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

/// Returns every directory that may contain a program of an engine.
pub fn program_directories() -> impl Iterator<Item = &'static str> {
    let extra_dirs = Engine::ALL
        .iter()
        .flat_map(|engine| engine.properties().extra_program_dirs);
    PROGRAM_DIRECTORIES.iter().chain(extra_dirs).copied()
}

/// The names of the OCI runtimes that an engine or a user may call.
pub const OCI_RUNTIME_NAMES: [&str; 3] = ["runc", "crun", "youki"];

impl Engine {
    /// All engines. A distribution comes before the engine that is part of it.
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

    pub const fn properties(self) -> &'static EngineProperties {
        match self {
            Self::K3s => &EngineProperties {
                name: "k3s",
                programs: &["k3s"],
                extra_program_dirs: &["/var/lib/rancher/k3s/data/current/bin"],
                bundle_patterns: &["/run/k3s/containerd/io.containerd.runtime.v2.task/*/*"],
                reload_method: ReloadMethod::Restart(&["k3s.service", "k3s-agent.service"]),
                example_command: None,
                load_check: LoadCheck::Socket("/run/k3s/containerd/containerd.sock"),
            },
            Self::Rke2 => &EngineProperties {
                name: "rke2",
                programs: &["rke2"],
                extra_program_dirs: &["/opt/rke2/bin", "/var/lib/rancher/rke2/bin"],
                bundle_patterns: &["/run/k3s/containerd/io.containerd.runtime.v2.task/*/*"],
                reload_method: ReloadMethod::Restart(&[
                    "rke2-server.service",
                    "rke2-agent.service",
                ]),
                example_command: None,
                load_check: LoadCheck::Socket("/run/k3s/containerd/containerd.sock"),
            },
            Self::K0s => &EngineProperties {
                name: "k0s",
                programs: &["k0s"],
                extra_program_dirs: &["/var/lib/k0s/bin"],
                bundle_patterns: &["/run/k0s/containerd/io.containerd.runtime.v2.task/*/*"],
                reload_method: ReloadMethod::Restart(&[
                    "k0sworker.service",
                    "k0scontroller.service",
                ]),
                example_command: None,
                load_check: LoadCheck::Socket("/run/k0s/containerd.sock"),
            },
            Self::Microk8s => &EngineProperties {
                name: "microk8s",
                programs: &["microk8s"],
                extra_program_dirs: &[],
                bundle_patterns: &[
                    "/var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task/*/*",
                ],
                reload_method: ReloadMethod::Restart(&["snap.microk8s.daemon-containerd.service"]),
                example_command: None,
                load_check: LoadCheck::Socket("/var/snap/microk8s/common/run/containerd.sock"),
            },
            Self::Containerd => &EngineProperties {
                name: "containerd",
                programs: &["containerd"],
                extra_program_dirs: &[],
                bundle_patterns: &["/run/containerd/io.containerd.runtime.v2.task/*/*"],
                reload_method: ReloadMethod::Restart(&["containerd.service"]),
                example_command: None,
                load_check: LoadCheck::Socket("/run/containerd/containerd.sock"),
            },
            Self::Crio => &EngineProperties {
                name: "crio",
                programs: &["crio"],
                extra_program_dirs: &[],
                bundle_patterns: &[
                    "/run/containers/storage/overlay-containers/*/userdata",
                    "/var/lib/containers/storage/overlay-containers/*/userdata",
                ],
                reload_method: ReloadMethod::Restart(&["crio.service"]),
                example_command: None,
                load_check: LoadCheck::Socket("/run/crio/crio.sock"),
            },
            Self::Docker => &EngineProperties {
                name: "docker",
                programs: &["dockerd"],
                extra_program_dirs: &[],
                bundle_patterns: &[
                    "/run/docker/containerd/daemon/io.containerd.runtime.v2.task/*/*",
                ],
                reload_method: ReloadMethod::Hangup {
                    unit: "docker.service",
                    pid_file: "/run/docker.pid",
                },
                example_command: Some("docker run --rm --runtime boathook -e VARIABLE=all IMAGE"),
                load_check: LoadCheck::DockerApi,
            },
            Self::Podman => &EngineProperties {
                name: "podman",
                programs: &["podman"],
                extra_program_dirs: &[],
                bundle_patterns: &[
                    "/run/containers/storage/overlay-containers/*/userdata",
                    "/var/lib/containers/storage/overlay-containers/*/userdata",
                ],
                reload_method: ReloadMethod::NotNeeded,
                example_command: Some("podman run --rm -e VARIABLE=all IMAGE"),
                load_check: LoadCheck::NoDaemon,
            },
        }
    }

    /// Returns the engine's name, as it is written on a command line, such as `crio`.
    pub fn name(self) -> &'static str {
        self.properties().name
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
