//! What one object names must be in another, or in the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use initcontainer::layout::{CONFIG, HOOK, ROOT, RUNTIME};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use runtime_config::{Change, Engine, HANDLER, HostRoot, Options, scratch};
use serde_json::{Value, json};

use crate::manifest::Objects;

/// Where the init container sees the host.
const HOST: &str = "/host";

/// Checks all that a rendered overlay, or the base, refers to.
pub(crate) fn check(objects: &Objects, config_maps: &BTreeSet<String>) {
    let [daemon_set] = objects.daemon_sets.as_slice() else {
        panic!("{} daemon sets", objects.daemon_sets.len());
    };
    let handlers: Vec<_> = objects
        .runtime_classes
        .iter()
        .map(|c| c.handler.as_str())
        .collect();
    let pod = pod(daemon_set);
    let wanted: &[&str] = if by_cdi(pod) { &[] } else { &[HANDLER] };
    assert_eq!(handlers, wanted);
    let accounts: Vec<_> = objects
        .service_accounts
        .iter()
        .map(|a| a.metadata.name.as_deref())
        .collect();
    assert_eq!(accounts, [pod.service_account_name.as_deref()]);
    assert_eq!(pod.automount_service_account_token, Some(false));
    let classes = objects.priority_classes.iter();
    let classes: Vec<_> = classes.map(|c| c.metadata.name.as_deref()).collect();
    assert_eq!(classes, [pod.priority_class_name.as_deref()]);
    check_selector(daemon_set);
    check_volumes(pod, config_maps);
    for container in containers(pod) {
        check_security(container);
    }
    let init = init(pod);
    assert_eq!(
        init.command.as_deref(),
        Some(&["/boathook/bin/boathook-init".to_owned()][..])
    );
    for path in [ROOT, Path::new(CONFIG).parent().unwrap().to_str().unwrap()] {
        assert!(
            is_writable(init, Path::new(path)),
            "{path} is not mounted for writing"
        );
    }
}

/// Checks that all that an engine's configuration needs is mounted.
pub(crate) fn check_engine(objects: &Objects) {
    let pod = pod(&objects.daemon_sets[0]);
    let init = init(pod);
    let arguments = init.args.as_ref().unwrap();
    let name = arguments
        .iter()
        .find_map(|a| a.strip_prefix("--engine="))
        .unwrap();
    if by_cdi(pod) {
        assert_eq!(name, "none");
        return check_specifications(pod);
    }
    let engine: Engine = name.parse().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let host = HostRoot::open(empty.path()).unwrap();
    let options = Options {
        hook: HOOK.into(),
        runtime: RUNTIME.into(),
        set_default: false,
        base_spec: None,
    };
    let plan = engine
        .plan_install(&engine.read(&host, None).unwrap(), None, &options)
        .unwrap();
    let mut written = 0;
    for change in &plan.changes {
        if let Change::Write { path, .. } = change {
            // The file, and the place from which it is renamed there.
            for path in [path.clone(), scratch(path)] {
                assert!(
                    is_writable(init, &path),
                    "{engine}: {} is not mounted",
                    path.display()
                );
            }
            written += 1;
        }
    }
    assert!(written > 0);
}

/// Checks that the kubelet finds the probes, which have a port of their own.
pub(crate) fn check_probes(objects: &Objects) {
    let plugin = &pod(&objects.daemon_sets[0]).containers[0];
    let port = &plugin.ports.as_deref().unwrap()[0];
    let listens = format!("--probes=[::]:{}", port.container_port);
    assert!(plugin.args.as_ref().unwrap().contains(&listens));
    let path = |probe: &Option<Probe>| {
        let get = probe.as_ref().unwrap().http_get.clone().unwrap();
        assert_eq!(get.port, IntOrString::String(port.name.clone().unwrap()));
        get.path.unwrap()
    };
    assert_eq!(path(&plugin.liveness_probe), "/healthz");
    assert_eq!(path(&plugin.readiness_probe), "/readyz");
}

/// Checks that Prometheus finds what the plugin serves.
pub(crate) fn check_monitoring(objects: &Objects) {
    let daemon_set = &objects.daemon_sets[0];
    let plugin = &pod(daemon_set).containers[0];
    let [_, port] = plugin.ports.as_deref().unwrap() else {
        panic!("{:?}", plugin.ports);
    };
    let listens = format!("--http=[::]:{}", port.container_port);
    assert!(plugin.args.as_ref().unwrap().contains(&listens));
    let [monitor] = objects.pod_monitors.as_slice() else {
        panic!("{} pod monitors", objects.pod_monitors.len());
    };
    let spec = &monitor["spec"];
    assert_eq!(
        spec["podMetricsEndpoints"][0]["port"],
        *port.name.as_ref().unwrap()
    );
    let template = &daemon_set.spec.template;
    let labels = template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    for (key, value) in spec["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(labels.get(key).map(String::as_str), value.as_str(), "{key}");
    }
}

/// Checks that only `peer` reaches the plugin's port.
pub(crate) fn check_metrics_policy(objects: &Objects, port: i32, peer: &Value) {
    let [policy] = objects.network_policies.as_slice() else {
        panic!("{} policies", objects.network_policies.len());
    };
    let template = &objects.daemon_sets[0].spec.template;
    let labels = template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    let policy = serde_json::to_value(&policy.spec).unwrap();
    for (key, value) in policy["podSelector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(labels.get(key).map(String::as_str), value.as_str(), "{key}");
    }
    let rule = json!({"from": [peer], "ports": [{"protocol": "TCP", "port": port}]});
    assert_eq!(policy["ingress"], json!([rule]));
}

/// Whether the engine brings the hook by itself: no file of it is mounted.
fn by_cdi(pod: &PodSpec) -> bool {
    let mut mounts = init(pod).volume_mounts.iter().flatten();
    !mounts.any(|mount| mount.name == "engine-config")
}

/// Checks that one more DaemonSet has the node's processes, and the first one no more than
/// `without`.
pub(crate) fn check_follower(objects: &Objects, without: &Objects) {
    let is_follower = |set: &&DaemonSet| set.metadata.name.as_deref() == Some("boathook-follow");
    let (follower, others): (Vec<_>, Vec<_>) = objects.daemon_sets.iter().partition(is_follower);
    assert_eq!(others, without.daemon_sets.iter().collect::<Vec<_>>());
    let [follower] = follower[..] else {
        panic!("{} followers", follower.len());
    };
    check_selector(follower);
    assert_eq!(follower.metadata.namespace, others[0].metadata.namespace);
    let (plugin, pod) = (pod(others[0]), pod(follower));
    assert_eq!((plugin.host_pid, pod.host_pid), (None, Some(true)));
    assert_eq!(pod.volumes, None);
    assert_eq!(pod.service_account_name, plugin.service_account_name);
    assert_eq!(pod.priority_class_name, plugin.priority_class_name);
    assert_eq!(pod.tolerations, plugin.tolerations);
    assert_eq!(pod.affinity, plugin.affinity);
    let container = &pod.containers[0];
    assert_eq!(container.image, plugin.containers[0].image);
    let words =
        [&container.command, &container.args].map(|words| words.as_ref().unwrap().join(" "));
    assert_eq!(words, ["/boathook/bin/boathook", "follow --from-pod"]);
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, None);
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let capabilities = context.capabilities.as_ref().unwrap();
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    let needed = "SYS_ADMIN SYS_CHROOT SYS_PTRACE NET_ADMIN MKNOD CHOWN \
        DAC_OVERRIDE FOWNER SETGID SETUID";
    assert_eq!(capabilities.add.as_ref().unwrap().join(" "), needed);
    let memory = &container
        .resources
        .as_ref()
        .unwrap()
        .limits
        .as_ref()
        .unwrap()["memory"];
    assert_eq!(memory.0, "64Mi");
}

/// The plugin writes where the engine reads.
fn check_specifications(pod: &PodSpec) {
    let mut mounts = pod.containers[0].volume_mounts.iter().flatten();
    let mount = mounts.find(|mount| mount.mount_path == "/var/run/cdi");
    let mount = mount.unwrap();
    assert_eq!(mount.read_only, None);
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == mount.name).unwrap();
    assert_eq!(volume.host_path.as_ref().unwrap().path, "/var/run/cdi");
}

pub(crate) fn pod(daemon_set: &DaemonSet) -> &PodSpec {
    daemon_set.spec.template.spec.as_ref().unwrap()
}

fn init(pod: &PodSpec) -> &Container {
    &pod.init_containers.as_ref().unwrap()[0]
}

pub(crate) fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

fn is_writable(init: &Container, path: &Path) -> bool {
    let path = Path::new(HOST).join(path.strip_prefix("/").unwrap());
    let mounts = init.volume_mounts.iter().flatten();
    let mut writable = mounts
        .filter(|m| m.read_only != Some(true))
        .map(|m| PathBuf::from(&m.mount_path));
    writable.any(|mount| path.starts_with(mount))
}

fn check_selector(daemon_set: &DaemonSet) {
    let spec = &daemon_set.spec;
    let selected = spec.selector.match_labels.as_ref().unwrap();
    let labels = spec
        .template
        .metadata
        .as_ref()
        .unwrap()
        .labels
        .as_ref()
        .unwrap();
    assert!(!selected.is_empty());
    for (key, value) in selected {
        assert_eq!(labels.get(key), Some(value), "{key}");
    }
}

/// Checks that everything is mounted that there is, and the other way round.
pub(crate) fn check_volumes(pod: &PodSpec, config_maps: &BTreeSet<String>) {
    let volumes: BTreeSet<_> = pod
        .volumes
        .iter()
        .flatten()
        .map(|v| v.name.clone())
        .collect();
    let mounts = containers(pod).flat_map(|c| c.volume_mounts.iter().flatten());
    let mounted: BTreeSet<_> = mounts.map(|m| m.name.clone()).collect();
    assert_eq!(mounted, volumes, "what is mounted, and what there is");
    for volume in pod.volumes.iter().flatten() {
        if let Some(config_map) = &volume.config_map {
            assert!(
                config_maps.contains(&config_map.name),
                "no ConfigMap {}",
                config_map.name
            );
        }
    }
}

fn check_security(container: &Container) {
    let name = &container.name;
    let context = container.security_context.as_ref().unwrap();
    assert_ne!(context.privileged, Some(true), "{name}");
    assert_eq!(context.allow_privilege_escalation, Some(false), "{name}");
    assert_eq!(context.read_only_root_filesystem, Some(true), "{name}");
    let dropped = context
        .capabilities
        .as_ref()
        .unwrap()
        .drop
        .as_ref()
        .unwrap();
    assert_eq!(*dropped, ["ALL"], "{name}");
    let resources = container.resources.as_ref().unwrap();
    assert!(
        resources.requests.as_ref().unwrap().contains_key("cpu"),
        "{name}"
    );
    assert!(
        resources.limits.as_ref().unwrap().contains_key("memory"),
        "{name}"
    );
}

/// The plugin in its container and the hook on the host have one configuration.
pub(crate) fn check_configuration(objects: &Objects) {
    for pod in objects.daemon_sets.iter().map(pod) {
        let config = "--config=/config/config.toml".to_owned();
        for container in containers(pod).filter(|c| c.image.is_some()) {
            let arguments = container.args.iter().flatten();
            let without = ["uninstall", "wait", "check-engine"];
            if arguments.clone().any(|word| without.contains(&&**word)) {
                continue;
            }
            let mut given = arguments.filter(|argument| argument.starts_with("--config"));
            assert_eq!(given.next(), Some(&config), "{}", container.name);
            let mut mounts = container.volume_mounts.iter().flatten();
            let mount = mounts.find(|mount| mount.mount_path == "/config");
            assert_eq!(mount.unwrap().name, "plugin-config", "{}", container.name);
        }
    }
}
