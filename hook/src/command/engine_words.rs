//! The words in which an engine's user asks for a device. Advice names the commands and keys of the
//! engine that the container or the host has.

use std::path::Path;

use device_class::config::Config;
use runtime_config::{Engine, HANDLER, program_directories};

/// The directory of the kubelet for device plugins, below the root of the host. Its presence shows
/// that the host is a node of a cluster.
const KUBELET: &str = "var/lib/kubelet/device-plugins";

/// The program or API by which a user starts containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    Pod,
    Docker,
    Podman,
    /// An OCI runtime that is called without an engine.
    Runtime,
}

impl Launcher {
    /// Returns the launchers that the host has, the most likely one first.
    pub(super) fn find_all(config: &Config) -> Vec<Self> {
        let mut found = Vec::new();
        if is_node(config) {
            found.push(Launcher::Pod);
        }
        for (engine, launcher) in [
            (Engine::Docker, Launcher::Docker),
            (Engine::Podman, Launcher::Podman),
        ] {
            if is_installed(engine, &config.host_root) {
                found.push(launcher);
            }
        }
        if found.is_empty() {
            found.push(Launcher::Runtime);
        }
        found
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
            Launcher::Runtime => format!("`{variable}={value}` in process.env of config.json"),
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

/// Returns whether a text needs no quotes in a shell, in YAML and in a unit file.
fn is_plain(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/') && text.chars().all(is_plain)
}

pub(super) fn quote_for_shell(text: &str) -> String {
    match is_plain(text) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

pub(super) fn quote_for_yaml(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
