//! Checks the names with which one object refers to another object or to constants of the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::config::InstalledDirectories;
use runtime_config::{
    Change, Engine, HostRoot, InstallOptions, LoadCheck, RUNTIME_HANDLER_NAME, scratch_path,
};
use serde_json::{Value, json};

use crate::manifest::{Objects, list, mount_at, name, named, pod, text, words};

/// The path at which the host is mounted in the init container.
const HOST: &str = "/host";

/// Checks all references of a rendered overlay, or of the base with its generated ConfigMaps.
pub(crate) fn check(objects: &Objects, config_maps: &BTreeSet<String>) {
    let daemon_set = objects.only("DaemonSet");
    let pod = objects.pod();
    let handlers = objects.of_kind("RuntimeClass").into_iter();
    let handlers: Vec<_> = handlers.map(|class| &class["handler"]).collect();
    let wanted: &[&str] = if by_cdi(objects) {
        &[]
    } else {
        &[RUNTIME_HANDLER_NAME]
    };
    assert_eq!(handlers, wanted);
    let account = &objects.only("ServiceAccount")["metadata"]["name"];
    assert_eq!(*account, pod["serviceAccountName"]);
    assert_eq!(pod["automountServiceAccountToken"], false);
    let class = &objects.only("PriorityClass")["metadata"]["name"];
    assert_eq!(*class, pod["priorityClassName"]);
    check_selector(daemon_set);
    check_volumes(pod, config_maps);
    containers(pod).for_each(check_security);
    check_sockets(pod);
    let init = objects.init();
    assert_eq!(init["command"], json!(["/boathook/bin/boathook-init"]));
    let directories = InstalledDirectories::default();
    for path in [&directories.programs_dir, &directories.config_dir] {
        assert!(is_writable(init, path), "{}", path.display());
    }
}

/// Checks that the directories of all files of the engine's configuration are mounted.
pub(crate) fn check_engine(objects: &Objects) {
    let init = objects.init();
    let arguments = words(&init["args"]).into_iter();
    let mut named = arguments.filter_map(|argument| argument.strip_prefix("--engine="));
    let name = named.next().unwrap();
    if by_cdi(objects) {
        assert_eq!(name, "none");
        return check_specifications(objects);
    }
    let engine: Engine = name.parse().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let host = HostRoot::open(empty.path()).unwrap();
    let options = InstallOptions {
        hook_path: InstalledDirectories::default().hook_path(),
        runtime_path: InstalledDirectories::default().program_path("boathook-runtime"),
        set_default: false,
        real_runtime_path: None,
        additional_names: Vec::new(),
        base_spec: None,
    };
    let now = engine.read_snapshot(&host, None).unwrap();
    let plan = engine.plan_install(&now, None, &options).unwrap();
    let mut written = 0;
    for change in &plan.changes {
        if let Change::Write { path, .. } = change {
            // The scratch file, which is renamed to the file, needs a mount too.
            for path in [path.clone(), scratch_path(path)] {
                let place = path.display();
                assert!(is_writable(init, &path), "{engine}: {place} is not mounted");
            }
            written += 1;
        }
    }
    assert!(written > 0);
}

/// Checks that the kubelet's probes use the plugin's port and paths for probes.
pub(crate) fn check_probes(objects: &Objects) {
    let plugin = objects.plugin();
    let port = &plugin["ports"][0];
    let listens = format!("--probes=[::]:{}", port["containerPort"]);
    assert!(words(&plugin["args"]).contains(&&*listens));
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = &plugin[probe]["httpGet"];
        assert_eq!((&get["port"], &get["path"]), (&port["name"], &json!(path)));
    }
    // A rollout waits for this probe on each node.
    assert_eq!(plugin["readinessProbe"]["periodSeconds"], 5);
}

/// Checks that Prometheus finds the plugin's metrics.
pub(crate) fn check_monitoring(objects: &Objects) {
    let plugin = objects.plugin();
    assert_eq!(list(&plugin["ports"]).count(), 2);
    let port = &plugin["ports"][1];
    let listens = format!("--http=[::]:{}", port["containerPort"]);
    assert!(words(&plugin["args"]).contains(&&*listens));
    let spec = &objects.only("PodMonitor")["spec"];
    assert_eq!(spec["podMetricsEndpoints"][0]["port"], port["name"]);
    check_labels(&spec["selector"], objects.of_kind("DaemonSet")[0]);
}

/// Checks that the plugin writes its labels to a directory of the node.
pub(crate) fn check_node_labels(objects: &Objects, directory: &str) {
    let plugin = objects.plugin();
    assert!(words(&plugin["args"]).contains(&"--node-labels=/node-labels/boathook"));
    let mount = mount_at(plugin, "/node-labels").unwrap();
    assert_eq!(mount["readOnly"], Value::Null);
    let volume = named(&objects.pod()["volumes"], text(&mount["name"])).unwrap();
    assert_eq!(volume["hostPath"]["path"], directory);
}

/// Checks whether the pod reads the node's groups.
pub(crate) fn check_groups(pod: &Value, is_read: bool) {
    let mount = mount_at(&pod["containers"][0], "/host/etc/group");
    assert_eq!(mount.is_some(), is_read);
    let volume = mount.and_then(|mount| named(&pod["volumes"], text(&mount["name"])));
    let path = volume.map(|volume| &volume["hostPath"]["path"]);
    assert_eq!(path, is_read.then_some(&json!("/etc/group")));
}

/// Checks that only `peer` reaches the plugin's port.
pub(crate) fn check_metrics_policy(objects: &Objects, port: i32, peer: &Value) {
    let policy = &objects.only("NetworkPolicy")["spec"];
    check_labels(&policy["podSelector"], objects.of_kind("DaemonSet")[0]);
    let rule = json!({"from": [peer], "ports": [{"protocol": "TCP", "port": port}]});
    assert_eq!(policy["ingress"], json!([rule]));
}

/// Returns whether the engine gets the hook by CDI specifications. No file of the engine is mounted
/// then.
fn by_cdi(objects: &Objects) -> bool {
    named(&objects.init()["volumeMounts"], "engine-config").is_none()
}

/// Checks that a second DaemonSet, the follower, runs in the node's pid namespace, and that the
/// first DaemonSet is the same as in `without`.
pub(crate) fn check_follower(objects: &Objects, without: &Objects) {
    let sets = objects.of_kind("DaemonSet");
    let is_follower = |set: &&Value| name(set) == "boathook-follow";
    let (follower, others): (Vec<_>, Vec<_>) = sets.into_iter().partition(is_follower);
    assert_eq!(others, without.of_kind("DaemonSet"));
    assert_eq!(follower.len(), 1);
    let (follower, other) = (follower[0], others[0]);
    check_selector(follower);
    let namespace = |set: &Value| set["metadata"]["namespace"].clone();
    assert_eq!(namespace(follower), namespace(other));
    let (plugin, pod) = (pod(other), pod(follower));
    assert_eq!(plugin["hostPID"], Value::Null);
    assert_eq!(pod["hostPID"], true);
    assert_eq!(pod["volumes"], Value::Null);
    for same in [
        "serviceAccountName",
        "priorityClassName",
        "tolerations",
        "affinity",
    ] {
        assert_eq!(pod[same], plugin[same], "{same}");
    }
    let container = &pod["containers"][0];
    assert_eq!(container["image"], plugin["containers"][0]["image"]);
    assert_eq!(container["command"], json!(["/boathook/bin/boathook"]));
    assert_eq!(container["args"], json!(["follow", "--from-pod"]));
    let context = &container["securityContext"];
    assert_eq!(context["privileged"], Value::Null);
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    let needed = "SYS_ADMIN SYS_CHROOT SYS_PTRACE NET_ADMIN MKNOD CHOWN \
        DAC_OVERRIDE FOWNER SETGID SETUID";
    assert_eq!(words(&context["capabilities"]["add"]).join(" "), needed);
    assert_eq!(container["resources"]["limits"]["memory"], "64Mi");
}

/// Checks that a container has no directory with a socket, except for directories of engines. A
/// process can connect to a socket even in a read-only mount. The container that queries the engine
/// must have all directories of engines.
fn check_sockets(pod: &Value) {
    let engines = [Engine::Containerd, Engine::K3s, Engine::Crio];
    let of_engines = engines.map(|engine| match engine.properties().load_check {
        LoadCheck::Socket(socket) => Path::new(socket).parent().unwrap(),
        _ => panic!("{engine} has no socket"),
    });
    let others = [
        "/run/docker.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
    ];
    let others = others.map(Path::new);
    for container in containers(pod) {
        let name = &container["name"];
        let mut mounted = BTreeSet::new();
        for mount in list(&container["volumeMounts"]) {
            let volume = named(&pod["volumes"], text(&mount["name"])).unwrap();
            let Some(path) = volume["hostPath"]["path"].as_str() else {
                continue;
            };
            let path = Path::new(
                path.strip_prefix("/var")
                    .filter(|p| p.starts_with("/run"))
                    .unwrap_or(path),
            );
            // The component that restarts the engine mounts the whole host.
            if path == Path::new("/") && mount["mountPath"] == HOST {
                continue;
            }
            let is_wide = |socket: &&Path| socket.starts_with(path);
            assert_eq!(
                others.iter().find(|socket| is_wide(socket)),
                None,
                "{name}: {mount}"
            );
            for directory in of_engines
                .into_iter()
                .filter(|directory| directory.starts_with(path))
            {
                assert_eq!(path, directory, "{name}: {mount}");
                assert_eq!(mount["readOnly"], true, "{name}: {mount}");
                mounted.insert(directory);
            }
        }
        if name == "check-engine" {
            assert_eq!(mounted, BTreeSet::from(of_engines));
        }
    }
}

/// Checks that the plugin writes its specifications to the directory from which the engine reads.
fn check_specifications(objects: &Objects) {
    let mount = mount_at(objects.plugin(), "/var/run/cdi").unwrap();
    assert_eq!(mount["readOnly"], Value::Null);
    let volume = named(&objects.pod()["volumes"], text(&mount["name"])).unwrap();
    assert_eq!(volume["hostPath"]["path"], "/var/run/cdi");
}

pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    list(&pod["initContainers"]).chain(list(&pod["containers"]))
}

fn is_writable(init: &Value, path: &Path) -> bool {
    let path = Path::new(HOST).join(path.strip_prefix("/").unwrap());
    let mut writable = list(&init["volumeMounts"]).filter(|mount| mount["readOnly"] != true);
    writable.any(|mount| path.starts_with(PathBuf::from(text(&mount["mountPath"]))))
}

fn check_selector(daemon_set: &Value) {
    check_labels(&daemon_set["spec"]["selector"], daemon_set);
}

/// Checks that the selector matches the labels of the pods.
fn check_labels(selector: &Value, daemon_set: &Value) {
    let labels = &daemon_set["spec"]["template"]["metadata"]["labels"];
    let selected = selector["matchLabels"].as_object().unwrap();
    assert!(!selected.is_empty());
    for (key, value) in selected {
        assert_eq!(labels[key], *value, "{key}");
    }
}

/// Checks that every volume is mounted, and that every mount has a volume.
pub(crate) fn check_volumes(pod: &Value, config_maps: &BTreeSet<String>) {
    let names = |values: &Value| -> BTreeSet<String> {
        list(values)
            .map(|value| text(&value["name"]).to_owned())
            .collect()
    };
    let mounted = containers(pod).flat_map(|container| names(&container["volumeMounts"]));
    let mounted: BTreeSet<String> = mounted.collect();
    assert_eq!(mounted, names(&pod["volumes"]));
    for volume in list(&pod["volumes"]) {
        if let Some(map) = volume["configMap"]["name"].as_str() {
            assert!(config_maps.contains(map), "no ConfigMap {map}");
        }
    }
}

fn check_security(container: &Value) {
    let name = &container["name"];
    let context = &container["securityContext"];
    assert_ne!(context["privileged"], true, "{name}");
    assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
    assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{name}");
    for (kind, resource) in [("requests", "cpu"), ("limits", "memory")] {
        assert!(container["resources"][kind][resource].is_string(), "{name}");
    }
}

/// Checks that the plugin in its container and the hook on the host have the same configuration.
pub(crate) fn check_configuration(objects: &Objects) {
    let sets = objects.of_kind("DaemonSet");
    let containers = sets.into_iter().flat_map(|set| containers(pod(set)));
    for container in containers.filter(|container| container["image"].is_string()) {
        let (name, arguments) = (&container["name"], words(&container["args"]));
        let without = ["uninstall", "wait", "check-engine"];
        if arguments.iter().any(|word| without.contains(word)) {
            continue;
        }
        let mut given = arguments.iter().filter(|word| word.starts_with("--config"));
        let wanted = Some(&"--config=/config/config.toml");
        assert_eq!(given.next(), wanted, "{name}");
        let mount = mount_at(container, "/config").unwrap();
        assert_eq!(mount["name"], "plugin-config", "{name}");
    }
}
