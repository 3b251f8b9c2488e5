//! Describes how a user requests a device with each launcher: a pod, Docker, podman, or a runtime.
//! The texts contain commands and configuration keys that the user can copy.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::{Config, InstalledDirectories};
use device_class::name::LinuxCapability;
use hook::oci::read_json;
use runtime_config::{Engine, RUNTIME_HANDLER_NAME, program_directories};
use serde_json::Value;

use super::cdi_names;
use super::containers::Container;
use super::devices::ListedDevice;

/// The directory in which device plugins register at the kubelet, relative to the host's root. It
/// exists if the host is a cluster node.
const DEVICE_PLUGIN_DIR: &str = "var/lib/kubelet/device-plugins";

/// The configuration file of Docker's daemon, relative to the host's root.
const DOCKER_CONFIG_PATH: &str = "etc/docker/daemon.json";

/// The ways in which the engines of this host can give devices to containers.
pub(super) struct DeliveryMethods {
    /// The engines that `boathook-init install` has configured.
    engines: Vec<Engine>,
    /// The CDI device names that engines can resolve, such as `example.com/npu=0`.
    cdi_names: BTreeSet<String>,
}

impl DeliveryMethods {
    pub(super) fn find(config: &Config) -> Self {
        let host_root = &config.host_root;
        let directories = InstalledDirectories::find(host_root).unwrap_or_default();
        let state_dir = directories.state_dir();
        let record_dir = host_root.join(state_dir.strip_prefix("/").unwrap_or(&state_dir));
        let docker_config: Value =
            read_json(&host_root.join(DOCKER_CONFIG_PATH)).unwrap_or_default();
        let has_docker_runtime = docker_config["runtimes"][RUNTIME_HANDLER_NAME].is_object();
        // `boathook-init` writes a record file for each engine that it configures. For Docker, a
        // user may have added the runtime to daemon.json without `boathook-init`.
        let is_configured = |engine: &Engine| {
            record_dir.join(format!("{engine}.json")).is_file()
                || *engine == Engine::Docker && has_docker_runtime
        };
        let specifications = cdi_names::read_specifications(config).into_iter();
        DeliveryMethods {
            engines: Engine::ALL.into_iter().filter(is_configured).collect(),
            cdi_names: specifications.flat_map(|(_, names)| names).collect(),
        }
    }
}

/// The program or API by which a user starts containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    Pod,
    Docker,
    Podman,
    /// containerd outside of pods (with nerdctl), or CRI-O. The user selects Boathook's runtime
    /// handler.
    RuntimeHandler,
    /// An OCI runtime, such as runc, that a user calls without an engine.
    OciRuntime,
}

impl Launcher {
    /// Returns the launcher that started a container. The path of the container's bundle identifies
    /// the engine. Pods use the same engines as other launchers, so the caller says in
    /// `is_in_a_pod` whether the container belongs to a pod.
    pub(super) fn from_container(container: &Container, is_in_a_pod: bool) -> Self {
        if is_in_a_pod {
            return Launcher::Pod;
        }
        match container.engine_name() {
            Some("docker") => Launcher::Docker,
            Some("podman") => Launcher::Podman,
            Some(_) => Launcher::RuntimeHandler,
            None => Launcher::OciRuntime,
        }
    }

    /// Returns the launchers that are installed on the host. The first one is the one that a user
    /// most probably uses.
    pub(super) fn find_installed(config: &Config) -> Vec<Self> {
        let mut launchers = Vec::new();
        if is_cluster_node(config) {
            launchers.push(Launcher::Pod);
        }
        for (engine, launcher) in [
            (Engine::Docker, Launcher::Docker),
            (Engine::Podman, Launcher::Podman),
        ] {
            if is_engine_installed(engine, &config.host_root) {
                launchers.push(launcher);
            }
        }
        if launchers.is_empty() {
            launchers.push(Launcher::OciRuntime);
        }
        launchers
    }

    /// Describes how to request devices of a class. Pods request the resource `resource`. Other
    /// containers set the environment variable `variable` to `value`.
    pub(super) fn describe_request(self, variable: &str, value: &str, resource: &str) -> String {
        let quoted_value = quote_for_shell(value);
        match self {
            Launcher::Pod => format!("`resources: {{limits: {{{resource}: 1}}}}` in the pod"),
            Launcher::Docker => format!(
                "`docker run --runtime {RUNTIME_HANDLER_NAME} -e {variable}={quoted_value} IMAGE`, with compose \
                 `runtime: {RUNTIME_HANDLER_NAME}` and `{variable}: {}` below `environment:`",
                quote_for_compose(value)
            ),
            Launcher::Podman => format!("`podman run -e {variable}={quoted_value} IMAGE`"),
            Launcher::RuntimeHandler => {
                format!(
                    "the runtime handler {RUNTIME_HANDLER_NAME} and the variable `{variable}={quoted_value}`"
                )
            }
            Launcher::OciRuntime => format!("`{variable}={value}` in process.env of config.json"),
        }
    }

    /// Describes how to create a container so that the hook is called, as with
    /// `docker run --runtime boathook`.
    pub(super) fn describe_container_creation(self) -> String {
        match self {
            Launcher::Pod => format!(
                "give the pod's container a limit of the resource and create the pod again; with \
                 containerd 1.x, or where only a variable names the devices, also set \
                 `runtimeClassName: {RUNTIME_HANDLER_NAME}`. `boathook check` says what brings the hook on \
                 this node"
            ),
            Launcher::Docker => format!(
                "create the container with `docker run --runtime {RUNTIME_HANDLER_NAME} ...`, with compose \
                 `runtime: {RUNTIME_HANDLER_NAME}` in the service, or make it the default: add `--set-default` to \
                 the options of your `boathook-init install`"
            ),
            Launcher::Podman => "install the hook with `boathook-init install --engine podman`, \
                                 then create the container again"
                .to_owned(),
            Launcher::RuntimeHandler => format!(
                "create the container with the runtime handler {RUNTIME_HANDLER_NAME}; `boathook-init status` \
                 shows whether the engine has it"
            ),
            Launcher::OciRuntime => "add the hook to config.json, or create the container with \
                                  `boathook-runtime` in place of the runtime (docs/engines.md)"
                .to_owned(),
        }
    }

    /// Returns two parts of a sentence for a user whose config.json contains a fixed device node.
    /// The first is the option that added the node, such as `--device`. The second says what the
    /// user has to do so that the hook is called.
    pub(super) fn describe_device_option(self) -> (&'static str, String) {
        match self {
            Launcher::Pod => (
                "the node that config.json names",
                "have the hook called (`boathook check` says what brings it on this node)"
                    .to_owned(),
            ),
            Launcher::Docker => (
                "`--device`",
                format!("use the runtime {RUNTIME_HANDLER_NAME}"),
            ),
            Launcher::Podman => (
                "`--device`, or of `AddDevice=` of a quadlet",
                "have the hook installed for podman (`boathook-init install --engine podman`)"
                    .to_owned(),
            ),
            Launcher::RuntimeHandler => (
                "`--device`",
                format!("use the runtime handler {RUNTIME_HANDLER_NAME}"),
            ),
            Launcher::OciRuntime => (
                "the node in config.json",
                "create the container with `boathook-runtime` in place of the runtime".to_owned(),
            ),
        }
    }

    /// Describes how a user adds the host's group `gid` to the groups of a container's process, as
    /// with `--group-add 44`.
    pub(super) fn describe_group_option(self, gid: u32) -> String {
        match self {
            Launcher::Pod => {
                format!("set `securityContext: {{supplementalGroups: [{gid}]}}` in the pod")
            }
            Launcher::Docker => format!(
                "add `--group-add {gid}` (compose: `group_add: [\"{gid}\"]`), or use the \
                 runtime {RUNTIME_HANDLER_NAME}, which adds the node's group"
            ),
            Launcher::Podman => format!(
                "add `--group-add {gid}`, or use `--runtime {RUNTIME_HANDLER_NAME}`, which adds the node's \
                 group"
            ),
            Launcher::RuntimeHandler | Launcher::OciRuntime => {
                format!("add {gid} to process.user.additionalGids (--group-add {gid})")
            }
        }
    }

    /// Describes how to request `device` with the methods that work on this host. If the engine is
    /// not configured for Boathook, the text contains a CDI device name, or the command that
    /// configures the engine.
    pub(super) fn describe_available_request(
        self,
        delivery_methods: &DeliveryMethods,
        device: &ListedDevice,
    ) -> String {
        let variable_request = self.describe_request(
            &device.variable,
            &device.suggest_request(),
            &device.resource,
        );
        let (engine, program) = match self {
            Launcher::Docker => (Engine::Docker, "docker"),
            Launcher::Podman => (Engine::Podman, "podman"),
            Launcher::Pod | Launcher::RuntimeHandler | Launcher::OciRuntime => {
                return variable_request;
            }
        };
        if delivery_methods.engines.contains(&engine) {
            return variable_request;
        }
        let cdi_name = format!("{}={}", device.resource, device.id);
        let cdi_request = format!(
            "`{program} run --device {} IMAGE`",
            quote_for_shell(&cdi_name)
        );
        match self {
            _ if delivery_methods.cdi_names.contains(&cdi_name) => cdi_request,
            Launcher::Podman => {
                format!(
                    "after `boathook cdi generate {}`: {cdi_request}",
                    device.class
                )
            }
            _ => format!("after `boathook-init install --engine {engine}`: {variable_request}"),
        }
    }

    /// Describes how to give a container a Linux capability, as with `--cap-add IPC_LOCK`.
    pub(super) fn describe_capability_option(self, capability: LinuxCapability) -> String {
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
            Launcher::RuntimeHandler => format!("add `--cap-add {name}`"),
            Launcher::OciRuntime => format!(
                "add {capability} to bounding, permitted and effective of process.capabilities in \
                 config.json"
            ),
        }
    }

    pub(super) fn describe_container_replacement(self) -> &'static str {
        match self {
            Launcher::Pod => "delete the pod, so that a new one is created",
            Launcher::Docker => {
                "create the container again (`docker compose up --force-recreate`, or `docker rm` \
                 and `docker run`)"
            }
            Launcher::Podman => "create the container again (`podman rm` and `podman run`)",
            Launcher::RuntimeHandler | Launcher::OciRuntime => "create the container again",
        }
    }
}

/// Returns whether this host is a node of a Kubernetes cluster: it has the directory of the kubelet
/// checkpoint or of the kubelet's device plugins.
pub(super) fn is_cluster_node(config: &Config) -> bool {
    let configured_dir = config.trust.kubelet_checkpoint.parent();
    configured_dir.is_some_and(Path::is_dir) || config.host_root.join(DEVICE_PLUGIN_DIR).is_dir()
}

fn is_engine_installed(engine: Engine, host_root: &Path) -> bool {
    let mut directories =
        program_directories().map(|path| host_root.join(path.trim_start_matches('/')));
    directories.any(|directory| {
        let mut programs = engine.properties().programs.iter();
        programs.any(|program| directory.join(program).is_file())
    })
}

/// Returns whether a shell reads `text`, such as `all` or `/dev/ttyUSB0`, as one argument without
/// quotes.
fn is_plain_word(text: &str) -> bool {
    let is_plain_char = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(is_plain_char)
}

pub(super) fn quote_for_shell(text: &str) -> String {
    if is_plain_word(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Quotes a text for a value in a file of compose, which is YAML. Compose itself replaces variables
/// such as `$HOME`, and reads `$$` as a dollar sign.
pub(super) fn quote_for_compose(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''").replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words are those of the engine that has the container, and of no other one.
    #[test]
    fn a_container_is_created_in_the_words_of_its_engine() {
        for (launcher, has, lacks) in [
            (
                Launcher::Pod,
                &["a limit of the resource", "`runtimeClassName: boathook`"][..],
                &["docker", "podman", "compose"][..],
            ),
            (
                Launcher::Docker,
                &[
                    "`docker run --runtime boathook ...`",
                    "compose `runtime: boathook`",
                ],
                &["podman", "pod ", "runtimeClassName", "handler"],
            ),
            (
                Launcher::Podman,
                &["`boathook-init install --engine podman`"],
                &["docker", "compose", "runtimeClassName", "handler"],
            ),
            (
                Launcher::RuntimeHandler,
                &["the runtime handler boathook"],
                &["docker", "podman", "compose"],
            ),
            (
                Launcher::OciRuntime,
                &["config.json", "`boathook-runtime`"],
                &["docker", "podman", "compose", "pod "],
            ),
        ] {
            let text = launcher.describe_container_creation();
            for word in has {
                assert!(text.contains(word), "{launcher:?}: no {word} in {text}");
            }
            for word in lacks {
                assert!(!text.contains(word), "{launcher:?}: {word} in {text}");
            }
        }
    }

    #[test]
    fn a_name_of_hardware_is_quoted_for_the_shell_and_for_compose() {
        for (name, shell, compose) in [
            ("ttyUSB0", "ttyUSB0", "'ttyUSB0'"),
            ("a$HOME?", "'a$HOME?'", "'a$$HOME?'"),
            ("it's", "'it'\\''s'", "'it''s'"),
        ] {
            assert_eq!(quote_for_shell(name), shell);
            assert_eq!(quote_for_compose(name), compose);
        }
    }
}
