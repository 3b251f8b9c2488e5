//! The DRA driver `boathook-dra`, called by a real kubelet, with the slices that the real
//! scheduler reads, as docs/dra.md has it: from the plugin to claims and back.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::binaries;
use serde_json::{Value, json};

use super::ClusterCase;
use super::daemons::Daemon;
use super::node::Node;
use super::overlay::{DEVICES, Overlay, relative};
use super::pod::{Pod, REPORT, claimed, container};

/// In the order of the table.
pub(super) const CASES: &[ClusterCase] = &[
    ("by the plugin: 64 devices", by_the_plugin),
    (
        "to claims: the plugin withdraws, 64 devices in slices",
        to_claims,
    ),
    ("a pod with a claim, one with two devices", one_pod),
    ("two pods, and two containers, share a claim", shared),
    ("pod to device: claims against the plugin", time_to_device),
    (
        "a limit, by the DeviceClass's extendedResourceName",
        by_limit,
    ),
    ("forged annotations", forged),
    ("health: taint and pod's status, and back", health),
    ("a container is killed, and started again", container_again),
    (
        "the driver killed: slices within 2 s of its start",
        driver_killed,
    ),
    ("a rolling update while a claim is held", rolling_update),
    ("/run/cdi emptied, the kubelet restarted", rebooted),
    ("back to the plugin", back),
    ("removal leaves no file", removal),
];

/// A class whose nodes the test makes and takes away.
const HELD: &str = "version = 1
resource = 'example.com/held'
request = { env = 'HELD_VISIBLE_DEVICES' }
[[discover]]
count = 2
[device]
id = 'held-{index}'
index = '{index}'
nodes = [{ path = '/dev/shm/held{index}', container_path = '/dev/held{index}' }]
";

const NAMESPACE: &str = "--namespace=boathook-system";

/// Applies the overlay, with a line `serve` or without it.
fn manifests(node: &Node, components: &[&str], serve: &str) -> Result<String> {
    let directory = node.directory("claims")?;
    let deploy = relative(&directory, &binaries::source_tree().join("deploy"))?;
    let deploy = deploy.display();
    fs::write(directory.join("held.toml"), HELD)?;
    let classes = ["dummy-npu", "held"];
    let config = classes.map(|class| format!("[class.{class}]\nenabled = true\n{serve}\n"));
    fs::write(directory.join("config.toml"), config.concat())?;
    let components: Vec<_> = components
        .iter()
        .map(|name| format!("{deploy}/components/{name}"))
        .collect();
    let text = format!(
        "resources: [{deploy}/overlays/cdi]\ncomponents: [{}]\nconfigMapGenerator:\n\
         - {{name: boathook-classes, namespace: boathook-system, behavior: merge, files: [held.toml]}}\n\
         - {{name: boathook-plugin, namespace: boathook-system, behavior: replace, files: [config.toml]}}\n",
        components.join(", ")
    );
    fs::write(directory.join("kustomization.yaml"), text)?;
    node.rendered(&directory)
}

fn by_the_plugin(node: &Node) -> Result<()> {
    // Nodes below a directory that every user can write to do not count.
    node.shell("chmod 755 /dev/shm; for index in 0 1; do mknod /dev/shm/held$index c 1 3; done")?;
    node.apply(&manifests(node, &[], "")?)?;
    node.until_devices()
}

fn to_claims(node: &Node) -> Result<()> {
    node.apply(&manifests(node, &["dra"], "serve = \"dra\"")?)?;
    node.rolled_out()?;
    rolled_out(node)?;
    let program = binaries::program("boathook-dra")?;
    let program = program.display();
    node.shell(&format!(
        "{program} device-class dummy-npu held | kubectl apply -f -"
    ))?;
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
    let status = [
        "rollout",
        "status",
        "daemonset/boathook-dra",
        "--timeout=180s",
    ];
    node.kubectl(&[&[NAMESPACE], &status[..]].concat())
        .with_context(|| {
            let logs = [NAMESPACE, "logs", "daemonset/boathook-dra"];
            node.kubectl(&logs)
                .unwrap_or_else(|error| error.to_string())
        })
        .map(drop)
}

/// The devices of dummy-npu in the slices.
fn published(node: &Node) -> Result<Vec<Value>> {
    let slices: Value =
        serde_json::from_str(&node.kubectl(&["get", "resourceslices", "-o", "json"])?)?;
    let slices = slices["items"].as_array().cloned().unwrap_or_default();
    let of_pool = |pool: &'static str| {
        move |slice: &&Value| {
            slice["spec"]["pool"]["name"]
                .as_str()
                .is_some_and(|name| name.ends_with(pool))
        }
    };
    let devices = |slice: &Value| {
        slice["spec"]["devices"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    Ok(slices
        .iter()
        .filter(of_pool("/dummy-npu"))
        .flat_map(devices)
        .collect())
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

fn one_pod(node: &Node) -> Result<()> {
    by_template("with-one", "one").run(node)?.number(1)?;
    by_template("with-two", "two").run(node)?.number(2)?;
    Pod::new(Overlay::Cdi, "with-none", 0).run(node)?.number(0)
}

fn shared(node: &Node) -> Result<()> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "shared"}, "spec": devices("dummy-npu", 1),
    });
    node.apply(&claim.to_string())?;
    let pod =
        |name| Pod::new(Overlay::Cdi, name, 0).claiming(json!({"resourceClaimName": "shared"}));
    let mut side = container("side", 0, REPORT);
    side["resources"] = claimed();
    side["restartPolicy"] = "Always".into();
    side["command"][2] = format!("{REPORT}; trap 'exit 0' TERM; sleep 100000 & wait").into();
    let first = pod("first")
        .that_stays()
        .specified("initContainers", json!([side]));
    let first = first.start(node)?;
    let second = pod("second").that_stays().start(node)?;
    let side = node.devices_of("first", "side")?;
    node.delete_pods(&["first", "second"])?;
    node.kubectl(&["delete", "resourceclaim", "shared"])?;
    first.number(1)?;
    ensure!(
        first == second && first == side,
        "they have {first:?}, {second:?} and {side:?}"
    );
    Ok(())
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

fn by_limit(node: &Node) -> Result<()> {
    for wanted in [1, 2] {
        Pod::new(Overlay::Cdi, &format!("limit-{wanted}"), wanted)
            .run(node)?
            .number(wanted)?;
    }
    Ok(())
}

/// The names of another's claim.
fn forged(node: &Node) -> Result<()> {
    by_template("holder", "one")
        .that_stays()
        .start(node)?
        .number(1)?;
    let names = node.shell(
        "grep -ho '\"name\": *\"[^\"]*\"' /run/cdi/boathook.dev-claim-*.json | cut -d'\"' -f4",
    )?;
    let name = names
        .lines()
        .next()
        .context("no name in the specification")?;
    let forged = Pod::new(Overlay::Cdi, "forged", 0)
        .annotation("cdi.k8s.io/boathook", &format!("boathook.dev/claim={name}"))
        .annotation("devices.boathook.dev/dummy-npu", "npu-3")
        .variable("0");
    let opened = forged.run(node)?.opened;
    node.delete_pods(&["holder"])?;
    ensure!(opened.is_empty(), "it has {opened:?}");
    Ok(())
}

fn health(node: &Node) -> Result<()> {
    let stays = "trap 'exit 0' TERM; sleep 100000 & wait";
    by_template("ill", "held")
        .with("/spec/containers/0/command/2", format!("{REPORT}; {stays}"))
        .start(node)?;
    let status = |wanted: &str| {
        let path = "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus}";
        Ok(node
            .kubectl(&["get", "pod", "ill", "-o", path])?
            .contains(wanted))
    };
    let tainted = || {
        let path = "jsonpath={.items[*].spec.devices[*].taints[*].key}";
        Ok(node
            .kubectl(&["get", "resourceslices", "-o", path])?
            .contains("boathook.dev/unhealthy"))
    };
    node.until("it is healthy", || status("\"Healthy\""))?;
    node.shell("mkdir /run/held && mv /dev/shm/held? /run/held")?;
    node.until("there is a taint", tainted)?;
    node.until("the pod's status says so", || status("\"Unhealthy\""))?;
    node.until("the pod's status has a reason", || status("/dev/shm/held"))?;
    node.shell("mv /run/held/held? /dev/shm")?;
    node.until("the taint is gone", || tainted().map(|is_so| !is_so))?;
    node.until("it is healthy again", || status("\"Healthy\""))?;
    node.delete_pods(&["ill"])
}

fn restarts(node: &Node, pod: &str) -> Result<String> {
    let count = "jsonpath={.status.containerStatuses[0].restartCount}";
    node.kubectl(&["get", "pod", pod, "-o", count])
}

fn container_again(node: &Node) -> Result<()> {
    let pod = by_template("again", "one")
        .with(
            "/spec/containers/0/command/2",
            format!("{REPORT}; sleep 2; exit 1"),
        )
        .specified("restartPolicy", "OnFailure");
    let first = pod.start(node)?;
    node.until("it was started again", || {
        Ok(restarts(node, "again")? == "1")
    })?;
    let second = node.reported("again")?;
    node.delete_pods(&["again"])?;
    first.number(1)?;
    ensure!(first == second, "first {first:?}, then {second:?}");
    Ok(())
}

/// A pod that runs keeps its device meanwhile, and another one gets another.
fn keeps_its_device(node: &Node, event: impl Fn() -> Result<()>) -> Result<()> {
    let held = by_template("held", "one").that_stays().start(node)?;
    held.number(1)?;
    let start = Instant::now();
    event()?;
    let over = start.elapsed();
    let other = by_template("other", "one").run(node)?;
    let next = start.elapsed() - over;
    let report = node.kubectl(&["exec", "held", "--", "sh", "-c", REPORT])?;
    node.delete_pods(&["held"])?;
    other.number(1)?;
    let nodes = report.lines().filter(|line| line.starts_with("node "));
    ensure!(
        nodes.count() == 1 && held.opened.is_disjoint(&other.opened),
        "{held:?}, {other:?}"
    );
    node.until("nothing is prepared any more", || {
        Ok(node
            .shell("ls /var/lib/kubelet/plugins/boathook.dev/claims")?
            .is_empty())
    })?;
    let end = start.elapsed() - over - next;
    // The kubelet tries again after a minute what fails while it has no driver.
    ensure!(next < Duration::from_secs(30), "the next pod took {next:?}");
    println!("{over:.1?} until it was over, {next:.1?} for the next pod, {end:.1?} to end both");
    Ok(())
}

fn driver_killed(node: &Node) -> Result<()> {
    keeps_its_device(node, || {
        let killed = node.signal("boathook-dra", "KILL")?;
        node.kubectl(&["delete", "resourceslices", "--all"])?;
        node.until("the driver runs again", || {
            Ok(!node.shell("pidof boathook-dra")?.is_empty())
        })?;
        let pid = node.shell("pidof boathook-dra")?;
        let pid = pid.trim();
        ensure!(!killed.iter().any(|old| old == pid), "it was not killed");
        until_published(node, DEVICES)?;
        // In hundredths of a second since boot (proc(5)), of which no name precedes it here.
        let age = node.shell(&format!(
            "awk 'NR==FNR {{now = $1; next}} {{print now - $22 / 100}}' /proc/uptime /proc/{pid}/stat"
        ))?;
        println!(
            "devices are published {} s after the driver's start",
            age.trim()
        );
        ensure!(age.trim().parse::<f64>()? <= 2.0, "published after {age} s");
        Ok(())
    })
}

fn rolling_update(node: &Node) -> Result<()> {
    node.make_next("boathook-cluster")?;
    keeps_its_device(node, || {
        let set = [
            "set",
            "image",
            "daemonset/boathook-dra",
            "dra=boathook-cluster:next",
        ];
        node.kubectl(&[&[NAMESPACE], &set[..]].concat())?;
        rolled_out(node)?;
        until_published(node, DEVICES)
    })
}

/// As a reboot leaves it, but for the boot id and other pods: no specification is there when
/// the container is started again.
fn rebooted(node: &Node) -> Result<()> {
    let pod = by_template("rebooted", "one")
        .that_stays()
        .specified("restartPolicy", "Always");
    let before = pod.start(node)?;
    node.shell("rm /run/cdi/*")?;
    node.signal("sleep", "TERM")?;
    node.restart(Daemon::Kubelet, "TERM")?;
    node.until("it was started again", || {
        Ok(restarts(node, "rebooted")? != "0")
    })?;
    let after = node.reported("rebooted")?;
    node.delete_pods(&["rebooted"])?;
    before.number(1)?;
    ensure!(before == after, "first {before:?}, then {after:?}");
    Ok(())
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
    node.kubectl(&["delete", "deviceclass", "dummy-npu", "held"])?;
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
