//! The DRA driver `boathook-dra`, called by a real kubelet, with the slices that the real
//! scheduler reads, as docs/dra.md has it: from the plugin to claims and back.

mod faults;
mod requests;

use std::fs;

use anyhow::{Context, Result, ensure};
use harness::binaries;
use serde_json::{Value, json};

use super::ClusterCase;
use super::node::Node;
use super::overlay::{DEVICES, Overlay, relative};
use super::pod::{Pod, REPORT};

/// In the order of the table.
pub(super) const CASES: &[ClusterCase] = &[
    ("by the plugin: 64 devices", by_the_plugin),
    (
        "to claims: the plugin withdraws, 64 devices in slices",
        to_claims,
    ),
    (
        "a pod with a claim, one with two devices",
        requests::one_pod,
    ),
    (
        "two pods, and two containers, share a claim",
        requests::shared,
    ),
    ("devices of two classes by one claim", requests::two_classes),
    (
        "the first of several requests that fits",
        requests::first_available,
    ),
    (
        "devices with the same attribute, and with different ones",
        requests::constraints,
    ),
    ("shares of a device", requests::shares),
    ("admin access beside the holders", requests::admin),
    (
        "admin access to 64 devices, by two claims",
        requests::admin_of_many,
    ),
    (
        "wrong parameters: an event says what is wrong",
        requests::wrong_parameters,
    ),
    ("parts of a device are made and removed", requests::parts),
    ("pod to device: claims against the plugin", time_to_device),
    (
        "a limit, by the DeviceClass's extendedResourceName",
        requests::by_limit,
    ),
    ("forged annotations", requests::forged),
    ("health: taint and pod's status, and back", faults::health),
    (
        "a container is killed, and started again",
        faults::container_again,
    ),
    (
        "the driver killed: slices within 2 s of its registration",
        faults::driver_killed,
    ),
    (
        "a rolling update while a claim is held",
        faults::rolling_update,
    ),
    (
        "a claim is deleted by force under a pod that runs",
        faults::deleted_by_force,
    ),
    (
        "/run/cdi emptied, the kubelet restarted",
        faults::restarted_without_specifications,
    ),
    (
        "/var/run/cdi is removed while a claim is held",
        faults::removed_cdi_directory,
    ),
    (
        "a mistake in config.toml while claims are served",
        faults::broken_configuration,
    ),
    ("the node reboots", faults::rebooted),
    ("back to the plugin", back),
    ("removal leaves no file", removal),
];

/// Classes of the administrator's own: one whose nodes the test makes and takes away, one with
/// devices of two sides, one with a device that is shared, and one that has parts.
const CLASSES: [(&str, &str); 4] = [
    (
        "held",
        "version = 1
resource = 'example.com/held'
request = { env = 'HELD_VISIBLE_DEVICES' }
[[discover]]
count = 2
[device]
id = 'held-{index}'
index = '{index}'
nodes = [{ path = '/dev/shm/held{index}', container_path = '/dev/held{index}' }]
",
    ),
    (
        "sided",
        "version = 1
resource = 'example.com/sided'
request = { env = 'SIDED_VISIBLE_DEVICES' }
[[discover]]
count = 4
attributes = [{ name = 'side', value = '{index}', map = { 0 = 'left', 1 = 'left', 2 = 'right', 3 = 'right' } }]
[device]
id = 'sided-{index}'
index = '{index}'
nodes = [{ path = '/dev/null', container_path = '/dev/sided{index}' }]
",
    ),
    (
        "shared",
        "version = 1
resource = 'example.com/shared'
request = { env = 'SHARED_VISIBLE_DEVICES' }
[[discover]]
count = 1
[device]
id = 'shared'
nodes = [{ path = '/dev/null', container_path = '/dev/shared' }]
",
    ),
    (
        "carved",
        "version = 1
resource = 'example.com/carved'
request = { env = 'CARVED_VISIBLE_DEVICES' }
[[discover]]
count = 1
attributes = [{ name = 'id', value = 'carved' }]
[[discover]]
additional = true
path = '/dev/shm/carve/carved{slot:number}'
part_of = 'carved'
attributes = [{ name = 'id', value = 'carved{slot}' }]
[device]
id = '{id}'
nodes = [{ path = '/dev/shm/carve/{id}', container_path = '/dev/{id}' }]
[[parts]]
profile = 'half'
placements = '0, 1'
slots = '1'
found = { value = '{slot}', equals = '{placement}' }
make = [['/usr/local/sbin/carve', 'make', '{placement}']]
remove = [['/usr/local/sbin/carve', 'remove', '{placement}']]
",
    ),
];

/// Makes the nodes of these classes on the host, and the program that makes parts.
const ON_THE_HOST: &str = "
    # Nodes below a directory that every user can write to do not count.
    chmod 755 /dev/shm
    for index in 0 1; do mknod /dev/shm/held$index c 1 3; done
    mkdir /dev/shm/carve
    mknod /dev/shm/carve/carved c 1 3
    cat >/usr/local/sbin/carve <<'END'
#!/bin/sh
case $1 in
make) mknod /dev/shm/carve/carved$2 c 1 3 ;;
remove) rm /dev/shm/carve/carved$2 ;;
esac
END
    chmod 755 /usr/local/sbin/carve
";

const NAMESPACE: &str = "--namespace=boathook-system";

/// Applies the overlay, with a line `serve` or without it.
fn manifests(node: &Node, components: &[&str], serve: &str) -> Result<String> {
    let directory = node.directory("claims")?;
    let deploy = relative(&directory, &binaries::source_tree().join("deploy"))?;
    let deploy = deploy.display();
    let mut config = format!("[class.dummy-npu]\nenabled = true\n{serve}\n");
    let mut files = Vec::new();
    for (class, text) in CLASSES {
        let file = format!("{class}.toml");
        fs::write(directory.join(&file), text)?;
        files.push(file);
        let replicas = if class == "shared" {
            "replicas = 4\n"
        } else {
            ""
        };
        config += &format!("[class.{class}]\n{replicas}{serve}\n");
    }
    fs::write(directory.join("config.toml"), config)?;
    let components: Vec<_> = components
        .iter()
        .map(|name| format!("{deploy}/components/{name}"))
        .collect();
    let text = format!(
        "resources: [{deploy}/overlays/cdi]\ncomponents: [{}]\nconfigMapGenerator:\n\
         - {{name: boathook-classes, namespace: boathook-system, behavior: merge, files: [{}]}}\n\
         - {{name: boathook-plugin, namespace: boathook-system, behavior: replace, files: [config.toml]}}\n",
        components.join(", "),
        files.join(", "),
    );
    fs::write(directory.join("kustomization.yaml"), text)?;
    node.rendered(&directory)
}

fn by_the_plugin(node: &Node) -> Result<()> {
    node.shell(ON_THE_HOST)?;
    node.apply(&manifests(node, &[], "")?)?;
    node.until_devices()
}

fn to_claims(node: &Node) -> Result<()> {
    node.apply(&manifests(node, &["dra"], "serve = \"dra\"")?)?;
    node.rolled_out()?;
    rolled_out(node)?;
    // As docs/dra.md has it.
    let exec = ["exec", "daemonset/boathook-dra", "--", "/boathook-dra"];
    let classes = [
        "device-class",
        "dummy-npu",
        "held",
        "sided",
        "shared",
        "carved",
    ];
    let directories = ["--config", "/config/config.toml", "--host-root", "/host"];
    let arguments = [&[NAMESPACE][..], &exec, &classes, &directories].concat();
    node.apply(&node.kubectl(&arguments)?)?;
    for (name, count) in [("one", 1), ("two", 2)] {
        node.apply(&template(name, "dummy-npu", count).to_string())?;
    }
    node.apply(&template("held", "held", 1).to_string())?;
    until_published(node, DEVICES)?;
    node.until("the plugin has withdrawn its resource", || {
        let left = node.allocatable()?;
        Ok(left.is_empty() || left == "0")
    })
}

fn rolled_out(node: &Node) -> Result<()> {
    let set = "daemonset/boathook-dra";
    let status = [NAMESPACE, "rollout", "status", set, "--timeout=180s"];
    let done = node.kubectl(&status).with_context(|| {
        let logs = node.kubectl(&[NAMESPACE, "logs", set]);
        logs.unwrap_or_else(|error| error.to_string())
    });
    done.map(drop)
}

/// The devices of dummy-npu in the slices.
fn published(node: &Node) -> Result<Vec<Value>> {
    let slices: Value =
        serde_json::from_str(&node.kubectl(&["get", "resourceslices", "-o", "json"])?)?;
    let slices = slices["items"].as_array().cloned().unwrap_or_default();
    let is_of_pool = |slice: &&Value| {
        let name = slice["spec"]["pool"]["name"].as_str();
        name.is_some_and(|name| name.ends_with("/dummy-npu"))
    };
    let slices = slices.iter().filter(is_of_pool);
    let devices = slices.filter_map(|slice| slice["spec"]["devices"].as_array());
    Ok(devices.flatten().cloned().collect())
}

fn until_published(node: &Node, wanted: &str) -> Result<()> {
    node.until("the devices are published", || {
        Ok(published(node)?.len().to_string() == wanted)
    })
}

fn template(name: &str, class: &str, count: usize) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": devices(class, count)},
    })
}

fn devices(class: &str, count: usize) -> Value {
    json!({"devices": {"requests": [
        {"name": "devices", "exactly": {"deviceClassName": class, "count": count}},
    ]}})
}

/// A pod with a claim by a template.
fn by_template(name: &str, template: &str) -> Pod {
    Pod::new(Overlay::Cdi, name, 0).claiming(json!({"resourceClaimTemplateName": template}))
}

/// Seconds from the call of `kubectl apply` to the start of the container's program: those
/// of a pod by a claim, and by a limit that the plugin serves.
fn time_to_device(node: &Node) -> Result<()> {
    const PODS: usize = 7;
    let held: Vec<f64> = (0..PODS)
        .map(|number| uptime_until(node, &by_template(&format!("timed-{number}"), "one")))
        .collect::<Result<_>>()?;
    node.apply(&manifests(node, &["dra"], "")?)?;
    node.rolled_out()?;
    node.until_devices()?;
    let limited: Vec<f64> = (0..PODS)
        .map(|number| uptime_until(node, &Pod::new(Overlay::Cdi, &format!("limit-{number}"), 1)))
        .collect::<Result<_>>()?;
    to_claims(node)?;
    let (claims, limits) = (median(held), median(limited));
    println!(
        "pod to device, median of {PODS}: {claims:.2} s by a claim, {limits:.2} s by the plugin"
    );
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn uptime_until(node: &Node, pod: &Pod) -> Result<f64> {
    let uptime = |text: &str| -> Result<f64> {
        let first = text.split(' ').next().context("no uptime")?;
        Ok(first.trim().parse()?)
    };
    let pod = pod.clone().with(
        "/spec/containers/0/command/2",
        format!("cat /proc/uptime; {REPORT}"),
    );
    let before = uptime(&node.shell("cat /proc/uptime")?)?;
    node.apply(&pod.text())?;
    node.until("it has ended", || Ok(node.phase(&pod.name)? == "Succeeded"))
        .with_context(|| node.described(&pod.name).unwrap_or_default())?;
    let started = uptime(&node.kubectl(&["logs", &pod.name])?)?;
    node.devices_of(&pod.name, "main")?.number(1)?;
    node.delete_pods(&[&pod.name])?;
    Ok(started - before)
}

/// A claim that is still prepared keeps its device from the plugin.
fn back(node: &Node) -> Result<()> {
    by_template("kept", "one").that_stays().start(node)?;
    node.apply(&manifests(node, &["dra"], "")?)?;
    node.rolled_out()?;
    rolled_out(node)?;
    let others = (DEVICES.parse::<u32>()? - 1).to_string();
    node.until("all but the claim's device", || {
        Ok(node.allocatable()? == others)
    })?;
    node.delete_pods(&["kept"])?;
    node.until_devices()?;
    until_published(node, "0")?;
    Pod::new(Overlay::Cdi, "by-limit", 2).run(node)?.number(2)
}

/// As docs/dra.md has it.
fn removal(node: &Node) -> Result<()> {
    node.kubectl(&[NAMESPACE, "delete", "daemonset", "boathook-dra"])?;
    node.kubectl(&["delete", "deviceclass", "--all"])?;
    let removing = manifests(node, &["uninstall"], "")?;
    node.apply(&removing)?;
    node.rolled_out()?;
    node.kubectl_with(
        &["delete", "--ignore-not-found"],
        &manifests(node, &["dra"], "")?,
    )?;
    let left = node.shell(
        "find /opt/boathook /etc/boathook /run/cdi /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry \
         -mindepth 1 2>/dev/null || true",
    )?;
    ensure!(left.is_empty(), "it left {left}");
    let slices = node.kubectl(&["get", "resourceslices", "-o", "name"])?;
    ensure!(slices.is_empty(), "it left {slices}");
    Ok(())
}
