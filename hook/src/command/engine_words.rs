//! The words in which an engine's user asks for a device. Advice names the commands and keys of the
//! engine that the container or the host has.

use std::path::Path;

use device_class::config::Config;
use device_class::name::LinuxCapability;
use runtime_config::{Engine, HANDLER, program_directories};

use super::containers::Container;

/// The directory of the kubelet for device plugins, below the root of the host. Its presence shows
/// that the host is a node of a cluster.
const KUBELET: &str = "var/lib/kubelet/device-plugins";

/// The program or API by which a user starts containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    Pod,
    Docker,
    Podman,
    /// containerd outside pods, as by nerdctl, and CRI-O.
    Handler,
    /// An OCI runtime that is called without an engine.
    Runtime,
}

impl Launcher {
    /// Returns the launcher of a container by the place of its bundle. `is_in_a_pod` tells the
    /// containers of a pod from others of the same engine.
    pub(super) fn from_container(container: &Container, is_in_a_pod: bool) -> Self {
        if is_in_a_pod {
            return Launcher::Pod;
        }
        match container.engine() {
            Some("docker") => Launcher::Docker,
            Some("podman") => Launcher::Podman,
            Some(_) => Launcher::Handler,
            None => Launcher::Runtime,
        }
    }

    /// Returns the launchers that the host has, the most likely one first.
    pub(super) fn find_all(config: &Config) -> Vec<Self> {
        let mut launchers = Vec::new();
        if is_node(config) {
            launchers.push(Launcher::Pod);
        }
        for (engine, launcher) in [
            (Engine::Docker, Launcher::Docker),
            (Engine::Podman, Launcher::Podman),
        ] {
            if is_installed(engine, &config.host_root) {
                launchers.push(launcher);
            }
        }
        if launchers.is_empty() {
            launchers.push(Launcher::Runtime);
        }
        launchers
    }

    /// Returns what to write for a container that gets the devices `value` of a class.
    pub(super) fn describe_request(self, variable: &str, value: &str, resource: &str) -> String {
        let shell = quote_for_shell(value);
        match self {
            Launcher::Pod => format!("`resources: {{limits: {{{resource}: 1}}}}` in the pod"),
            Launcher::Docker => format!(
                "`docker run --runtime {HANDLER} -e {variable}={shell} IMAGE`, with compose \
                 `runtime: {HANDLER}` and `{variable}: {}` below `environment:`",
                quote_for_yaml(value)
            ),
            Launcher::Podman => format!("`podman run -e {variable}={shell} IMAGE`"),
            Launcher::Handler => {
                format!("the runtime handler {HANDLER} and the variable `{variable}={shell}`")
            }
            Launcher::Runtime => format!("`{variable}={value}` in process.env of config.json"),
        }
    }

    /// Returns how to create a container so that its engine calls the hook.
    pub(super) fn describe_creation(self) -> String {
        match self {
            Launcher::Pod => format!(
                "give the pod's container a limit of the resource and create the pod again; with \
                 containerd 1.x, or where only a variable names the devices, also set \
                 `runtimeClassName: {HANDLER}`. `boathook check` says what brings the hook on \
                 this node"
            ),
            Launcher::Docker => format!(
                "create the container with `docker run --runtime {HANDLER} ...`, with compose \
                 `runtime: {HANDLER}` in the service, or make it the default with `boathook-init \
                 install --engine docker --set-default`"
            ),
            Launcher::Podman => "install the hook with `boathook-init install --engine podman`, \
                                 then create the container again"
                .to_owned(),
            Launcher::Handler => format!(
                "create the container with the runtime handler {HANDLER}; `boathook-init status` \
                 shows whether the engine has it"
            ),
            Launcher::Runtime => "add the hook to config.json, or create the container with \
                                  `boathook-runtime` in place of the runtime (docs/engines.md)"
                .to_owned(),
        }
    }

    /// Returns how to give the user of a container a group of the host.
    pub(super) fn describe_group(self, group: u32) -> String {
        match self {
            Launcher::Pod => {
                format!("set `securityContext: {{supplementalGroups: [{group}]}}` in the pod")
            }
            Launcher::Docker => format!(
                "add `--group-add {group}` (compose: `group_add: [\"{group}\"]`), or use the \
                 runtime {HANDLER}, which adds the node's group"
            ),
            Launcher::Podman => format!(
                "add `--group-add {group}`, or use `--runtime {HANDLER}`, which adds the node's \
                 group"
            ),
            Launcher::Handler | Launcher::Runtime => {
                format!("add {group} to process.user.additionalGids (--group-add {group})")
            }
        }
    }

    /// Returns how to give a container a capability.
    pub(super) fn describe_capability(self, capability: LinuxCapability) -> String {
        let name = capability.short_name();
        match self {
            Launcher::Pod => format!(
                "set `securityContext: {{capabilities: {{add: [{name}]}}}}` in the pod's container"
            ),
            Launcher::Docker => {
                format!("add `--cap-add {name}` (compose: `cap_add: [{name}]`)")
            }
            Launcher::Podman => {
                format!("add `--cap-add {name}` (quadlet: `AddCapability={capability}`)")
            }
            Launcher::Handler => format!("add `--cap-add {name}`"),
            Launcher::Runtime => format!(
                "add {capability} to bounding, permitted and effective of process.capabilities in \
                 config.json"
            ),
        }
    }

    /// Returns how to replace a container by a new one.
    pub(super) fn describe_replacement(self) -> &'static str {
        match self {
            Launcher::Pod => "delete the pod, so that a new one is created",
            Launcher::Docker => {
                "create the container again (`docker compose up --force-recreate`, or `docker rm` \
                 and `docker run`)"
            }
            Launcher::Podman => "create the container again (`podman rm` and `podman run`)",
            Launcher::Handler | Launcher::Runtime => "create the container again",
        }
    }
}

/// Returns whether the host is a node of a Kubernetes cluster.
pub(super) fn is_node(config: &Config) -> bool {
    let configured = config.trust.kubelet_checkpoint.parent();
    configured.is_some_and(Path::is_dir) || config.host_root.join(KUBELET).is_dir()
}

fn is_installed(engine: Engine, host_root: &Path) -> bool {
    let mut directories =
        program_directories().map(|path| host_root.join(path.trim_start_matches('/')));
    directories.any(|directory| {
        let mut programs = engine.facts().programs.iter();
        programs.any(|program| directory.join(program).is_file())
    })
}

/// Returns whether a text needs no quotes in a shell.
fn is_plain_word(text: &str) -> bool {
    let is_plain_char = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(is_plain_char)
}

pub(super) fn quote_for_shell(text: &str) -> String {
    match is_plain_word(text) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

pub(super) fn quote_for_yaml(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
