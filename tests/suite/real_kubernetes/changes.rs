//! A cluster under change: updates and kills of the plugin while pods arrive, mistakes in the
//! configuration, classes that go, and records that are lost.

mod day_two;
mod device_plugin;
mod host_service;
mod mistakes;
mod restarts;

use std::fs;

use anyhow::{Context, Result, ensure};
use harness::binaries;
use serde_json::json;

use super::ClusterCase;
use super::daemons::Daemon;
use super::node::Node;
use super::overlay::{Overlay, relative};
use super::pod::Pod;
pub(super) use restarts::restart_plugin;

/// In the order of the table.
pub(super) const CASES: &[ClusterCase] = &[
    ("from apply to 64 devices", install_first),
    (
        "ten rolling updates while pods arrive",
        restarts::rolling_updates,
    ),
    (
        "ten kills of the plugin and of a trivial one while pods arrive",
        restarts::kills,
    ),
    (
        "the newer of two instances ends while pods arrive",
        restarts::newer_instance_ends,
    ),
    (
        "the newer of two instances is killed while pods arrive",
        restarts::newer_instance_is_killed,
    ),
    ("the commands of docs/day-two.md", day_two::commands),
    ("a mistake in an own class", mistakes::broken_class),
    ("an own class is an empty file", mistakes::empty_class),
    (
        "a mistake in the node's config.toml",
        mistakes::broken_configuration,
    ),
    (
        "two own classes have one resource",
        mistakes::shared_resource,
    ),
    ("/var/run/cdi is removed", mistakes::removed_cdi_directory),
    (
        "a class goes while a pod has its device",
        mistakes::removed_class,
    ),
    (
        "a class is disabled while a pod has its device",
        mistakes::disabled_class_in_use,
    ),
    (
        "a class is disabled, and a vendor's plugin has the resource",
        mistakes::disabled_class,
    ),
    ("hostUsers: false with a node of mode 0660", restricted_node),
    ("the metrics have the pods of now", metrics),
    ("the kubelet's record is lost while a pod runs", lost_record),
    (
        "the kubelet's record is lost, and the plugin is killed, while a pod runs",
        lost_record_and_killed_plugin,
    ),
    ("the kubelet restarts", restarts::kubelet_restarts),
    ("the node reboots", restarts::reboot),
    (
        "a service of the host takes the place of the plugin's pod",
        host_service::install,
    ),
    (
        "the node reboots, with the service of the host: no pod is refused",
        host_service::reboot,
    ),
    (
        "the commands of docs/day-two.md, with the service of the host",
        host_service::day_two,
    ),
    (
        "ten reloads of the service of the host while pods arrive",
        host_service::reloads,
    ),
    (
        "ten restarts of the service of the host while pods arrive",
        host_service::restarts,
    ),
    (
        "back from the service of the host to the plugin's pod",
        host_service::back,
    ),
];

/// A class whose device every container may use.
const NULL: &str = "version = 1
resource = 'example.com/null'
request = { env = 'NULL_VISIBLE_DEVICES' }
[[discover]]
path = '/dev/null'
[device]
id = 'null'
nodes = [{ path = '/dev/null', container_path = '/dev/own-null' }]
";

/// The file of its devices for engines.
const NULL_FILE: &str = "/run/cdi/boathook-example.com.pods.boathook.dev-null.json";

/// The memory of the init container that installs. A development build's programs are several times
/// as large as a release's, and it has them twice: in its buffers, and in the node's tmpfs.
const MEMORY: &str = "256Mi";

/// Applies the manifests with these own classes and one of /dev/zero, by their file names, and
/// waits for the rollout.
pub(super) fn install(node: &Node, classes: &[(&str, &str)]) -> Result<()> {
    install_with(node, classes, "[class.dummy-npu]\nenabled = true\n")
}

/// Does the same with this `config.toml`.
fn install_with(node: &Node, classes: &[(&str, &str)], configuration: &str) -> Result<()> {
    let directory = node.directory("changes")?;
    let zero = NULL.replace("null", "zero").replace("NULL", "ZERO");
    let classes = [&[("zero.toml", zero.as_str())], classes].concat();
    for (name, text) in &classes {
        fs::write(directory.join(name), text)?;
    }
    fs::write(directory.join("config.toml"), configuration)?;
    let names: Vec<&str> = classes.iter().map(|(name, _)| *name).collect();
    let deploy = relative(&directory, &binaries::source_tree().join("deploy"))?;
    let deploy = deploy.display();
    let text = format!(
        "resources: [{deploy}/overlays/cdi]\n\
         configMapGenerator:\n\
         - {{name: boathook-classes, namespace: boathook-system, behavior: merge, files: [{}]}}\n\
         - {{name: boathook-plugin, namespace: boathook-system, behavior: replace, files: [config.toml]}}\n\
         patches:\n\
         - target: {{kind: DaemonSet, name: boathook}}\n\
         \x20 patch: |\n\
         \x20   - {{op: add, path: /spec/template/spec/containers/0/args/-, value: \"--http=[::]:9911\"}}\n\
         \x20   - {{op: replace, path: /spec/template/spec/initContainers/0/resources/limits/memory, value: {MEMORY}}}\n",
        names.join(", ")
    );
    fs::write(directory.join("kustomization.yaml"), text)?;
    node.apply(&node.rendered(&directory)?)?;
    node.rolled_out()?;
    node.until_devices()
}

fn install_first(node: &Node) -> Result<()> {
    install(node, &[("null.toml", NULL)])
}

/// The root of a user namespace is no owner of the host's node.
fn restricted_node(node: &Node) -> Result<()> {
    node.shell(
        "chmod 755 /dev/shm; mkdir /dev/shm/own; mknod --mode=0660 /dev/shm/own/null c 1 3",
    )?;
    let class = NULL
        .replace("null", "restricted")
        .replace("NULL", "RESTRICTED")
        .replace("/dev/restricted", "/dev/shm/own/null");
    install(node, &[("null.toml", NULL), ("restricted.toml", &class)])?;
    let script = "if true </dev/own-restricted; then echo opened; else echo denied; fi; \
                  trap 'exit 0' TERM; sleep 100000 & wait";
    let pod = Pod::new(Overlay::Cdi, "restricted", 0)
        .with("/spec/containers/0/command/2", script)
        .with(
            "/spec/containers/0/resources/limits",
            json!({"example.com/restricted": 1}),
        )
        .specified("hostUsers", false);
    node.apply(&pod.text())?;
    node.until("the pod has tried", || {
        Ok(node.kubectl(&["logs", "restricted"])?.contains("denied"))
    })?;
    let containers = node.kubectl(&[
        "get",
        "pod",
        "restricted",
        "-o",
        "jsonpath={.status.containerStatuses[0].containerID}",
    ])?;
    let id = containers.rsplit('/').next().context("it has an id")?;
    let found = node.shell(&format!(
        "/opt/boathook/current/bin/boathook doctor {id} 2>&1 || echo \"exit $?\""
    ))?;
    for words in [
        "may not open /dev/own-restricted",
        "give the host's node the mode 0666 by a udev rule",
        "exit 19",
    ] {
        ensure!(found.contains(words), "no {words:?} in {found}");
    }
    node.delete_pods(&["restricted"])?;
    node.shell("rm -r /dev/shm/own")?;
    install_first(node)
}

/// What the plugin's page of metrics has.
fn read_metrics(node: &Node) -> Result<String> {
    let names = ["--namespace=boathook-system", "get", "pods", "-o"];
    let name = node.kubectl(&[&names[..], &["jsonpath={.items[0].metadata.name}"]].concat())?;
    let path = format!("/api/v1/namespaces/boathook-system/pods/{name}:9911/proxy/metrics");
    node.kubectl(&["get", "--raw", &path])
}

fn metrics(node: &Node) -> Result<()> {
    let line = "boathook_allocated_devices{resource=\"dummy.com/npu\",namespace=\"default\",\
                pod=\"counted\",container=\"main\"} 2";
    Pod::new(Overlay::Cdi, "counted", 2)
        .that_stays()
        .start(node)?
        .number(2)?;
    node.until("the pod is counted", || {
        Ok(read_metrics(node)?.contains(line))
    })?;
    node.delete_pods(&["counted"])?;
    node.until("the pod is not counted any more", || {
        Ok(!read_metrics(node)?.contains("pod=\"counted\""))
    })
}

/// The kubelet gives the devices of a pod that runs to another one. The plugin reports it.
fn lost_record(node: &Node) -> Result<()> {
    lose_record(node, || Ok(()))
}

/// The next plugin knows the pod by the file of the one that was killed.
fn lost_record_and_killed_plugin(node: &Node) -> Result<()> {
    lose_record(node, || node.signal("boathook-plugin", "KILL").map(drop))
}

fn lose_record(node: &Node, event: impl FnOnce() -> Result<()>) -> Result<()> {
    let holder = Pod::new(Overlay::Cdi, "holder", 2)
        .that_stays()
        .start(node)?;
    holder.number(2)?;
    node.until("the plugin has seen the pod in the record", || {
        Ok(read_metrics(node)?.contains("pod=\"holder\""))
    })?;
    node.end(Daemon::Kubelet, "TERM")?;
    node.shell("rm /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")?;
    event()?;
    node.start_daemon(Daemon::Kubelet)?;
    // A kubelet that knows no device of a resource starts pods without them.
    restarts::wait_for_registration(node)?;
    node.until_devices()?;
    // The kubelet takes all 64 devices for free, and the scheduler 62. Which of them the other pod
    // gets is the kubelet's choice, so it requests all of these.
    let others = Pod::new(Overlay::Cdi, "others", 62)
        .that_stays()
        .start(node)?;
    others.number(62)?;
    let overlap = others.opened.intersection(&holder.opened).count();
    println!("the kubelet gave {overlap} devices twice");
    ensure!(overlap > 0, "none of {:?} was given again", holder.opened);
    let conflicts = "boathook_allocation_conflicts_total{resource=\"dummy.com/npu\"} ";
    node.until("the plugin has counted them", || {
        let page = read_metrics(node)?;
        let mut lines = page.lines();
        let count = lines.find_map(|line| line.strip_prefix(conflicts));
        Ok(count.context("no such metric")? == overlap.to_string())
    })?;
    node.delete_pods(&["holder", "others"])
}
