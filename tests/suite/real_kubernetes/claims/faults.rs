//! Faults of claims and of the driver while pods have devices.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{NAMESPACE, by_template, manifests, rolled_out, until_published};
use crate::real_kubernetes::daemons::Daemon;
use crate::real_kubernetes::node::Node;
use crate::real_kubernetes::overlay::DEVICES;
use crate::real_kubernetes::pod::REPORT;

/// The time after which a pod's status must say that its device is gone.
const MAX_TIME_TO_UNHEALTHY: Duration = Duration::from_secs(5);

pub(super) fn health(node: &Node) -> Result<()> {
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
    let start = Instant::now();
    node.until("the pod's status says so", || status("\"Unhealthy\""))?;
    let reported = start.elapsed();
    println!("unhealthy {reported:.1?} after the node was gone");
    ensure!(reported <= MAX_TIME_TO_UNHEALTHY, "after {reported:?}");
    node.until("there is a taint", tainted)?;
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

pub(super) fn container_again(node: &Node) -> Result<()> {
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

/// Writes the uptime of each change of a slice into a file. A call of kubectl after the changes would
/// add its own time.
const WATCH_SLICES: &str = "rm -f /run/slices
    timeout 120 kubectl get resourceslices --watch -o 'jsonpath={.metadata.name}{\"\\n\"}' |
        while read -r name; do
            read -r now rest </proc/uptime
            echo $now >>/run/slices
        done";

pub(super) fn driver_killed(node: &Node) -> Result<()> {
    node.start_script(WATCH_SLICES)?;
    node.until("the slices are watched", || {
        node.shell("cat /run/slices").map(|_| true)
    })?;
    keeps_its_device(node, || {
        let killed = node.signal("boathook-dra", "KILL")?;
        node.kubectl(&["delete", "resourceslices", "--all"])?;
        let mut pid = String::new();
        node.until("the driver runs again", || {
            node.shell("pidof boathook-dra")?
                .trim()
                .clone_into(&mut pid);
            Ok(!pid.is_empty() && !killed.contains(&pid))
        })?;
        until_published(node, DEVICES)?;
        // In hundredths of a second since boot (proc(5)), of which no name precedes it here.
        let start = node.shell(&format!(
            "awk '{{printf \"%.2f\", $22 / 100}}' /proc/{pid}/stat"
        ))?;
        let published = node.shell("tail -n 1 /run/slices")?;
        let age = published.trim().parse::<f64>()? - start.trim().parse::<f64>()?;
        // The kubelet looks for sockets of drivers once in a second.
        let log = ["logs", "--timestamps", "daemonset/boathook-dra"];
        let log = node.kubectl(&[&[NAMESPACE], &log[..]].concat())?;
        let registered = time_in_log(&log, "the kubelet has registered the driver")?;
        let published = time_in_log(&log, "/dummy-npu, 0 of them unhealthy")?;
        let later = (published - registered).rem_euclid(86_400.0);
        println!(
            "devices are published {age:.2} s after the driver's start, {later:.2} s after its \
             registration"
        );
        ensure!(later <= 2.0, "published {later} s after the registration");
        Ok(())
    })
}

/// Returns the time of day, in seconds, of the first line with this text.
fn time_in_log(log: &str, text: &str) -> Result<f64> {
    let mut lines = log.lines();
    let line = lines
        .find(|line| line.contains(text))
        .context("no such line")?;
    let (_, time) = line.split_once('T').context("no time")?;
    let (time, _) = time.split_once('Z').context("no time in UTC")?;
    let parts = time.split(':').map(str::parse::<f64>);
    let parts = parts.collect::<Result<Vec<f64>, _>>()?;
    Ok(parts
        .iter()
        .fold(0.0, |seconds, part| seconds * 60.0 + part))
}

pub(super) fn rolling_update(node: &Node) -> Result<()> {
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

/// Its finalizer is what keeps a claim that a pod uses. The scheduler then gives its device to the
/// next pod, which waits until the first one has ended.
pub(super) fn deleted_by_force(node: &Node) -> Result<()> {
    let held = by_template("held", "one").that_stays().start(node)?;
    held.number(1)?;
    let path = "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}";
    let claim = node.kubectl(&["get", "pod", "held", "-o", path])?;
    node.kubectl(&["delete", "resourceclaim", &claim, "--wait=false"])?;
    let patch = "--patch={\"metadata\": {\"finalizers\": null}}";
    node.kubectl(&["patch", "resourceclaim", &claim, "--type=merge", patch])?;
    node.until("the claim is gone", || {
        Ok(node.kubectl(&["get", "resourceclaim", &claim]).is_err())
    })?;
    let next = by_template("next", "one").that_stays();
    node.apply(&next.text())?;
    node.until("the next pod waits or has another device", || {
        let waits =
            format!("{claim}: there is no such claim, but a pod of this node still uses it");
        Ok(node.described("next")?.contains(&waits) || node.phase("next")? == "Running")
    })?;
    let report = node.kubectl(&["exec", "held", "--", "sh", "-c", REPORT])?;
    let nodes = report.lines().filter(|line| line.starts_with("node "));
    ensure!(nodes.count() == 1, "{report}");
    if node.phase("next")? == "Running" {
        let other = node.reported("next")?;
        ensure!(held.opened.is_disjoint(&other.opened), "both have {held:?}");
    }
    let start = Instant::now();
    node.delete_pods(&["held"])?;
    node.reported("next")?.number(1)?;
    // The kubelet tries again after growing times.
    println!(
        "the next pod runs {:.1?} after the end of the first",
        start.elapsed()
    );
    node.delete_pods(&["next"])
}

/// No specification is there when the container is started again.
pub(super) fn restarted_without_specifications(node: &Node) -> Result<()> {
    let pod = by_template("rebooted", "one")
        .that_stays()
        .specified("restartPolicy", "Always");
    let before = pod.start(node)?;
    node.shell("rm /run/cdi/*")?;
    node.signal("sleep", "TERM")?;
    node.restart(Daemon::Kubelet, "TERM")?;
    let start = Instant::now();
    node.until("it was started again", || {
        Ok(restarts(node, "rebooted")? != "0")
    })?;
    let after = node.reported("rebooted")?;
    println!(
        "the pod runs {:.1?} after the kubelet's start",
        start.elapsed()
    );
    node.delete_pods(&["rebooted"])?;
    before.number(1)?;
    ensure!(before == after, "first {before:?}, then {after:?}");
    Ok(())
}

/// The driver ends, and its container is started again with the directory that is there then.
pub(super) fn removed_cdi_directory(node: &Node) -> Result<()> {
    keeps_its_device(node, || {
        let start = Instant::now();
        node.shell("rm -r /run/cdi")?;
        node.until("the file of the claim is there again", || {
            Ok(node.shell("ls /run/cdi/boathook.dev-claim-*").is_ok())
        })?;
        println!("the file of the claim after {:.1?}", start.elapsed());
        // The driver publishes them after the kubelet has registered it.
        node.kubectl(&["delete", "resourceslices", "--all"])?;
        until_published(node, DEVICES)
    })
}

/// Plugin and driver go on with the configuration that the node has.
pub(super) fn broken_configuration(node: &Node) -> Result<()> {
    let apply = |serve: &str| {
        node.apply(&manifests(node, &["dra"], serve)?)?;
        node.rolled_out()?;
        rolled_out(node)
    };
    apply("serv = \"dra\"")?;
    until_published(node, DEVICES)?;
    by_template("beside-a-mistake", "one")
        .run(node)?
        .number(1)?;
    let of_the_plugin = node.allocatable()?;
    apply("serve = \"dra\"")?;
    ensure!(
        of_the_plugin.is_empty() || of_the_plugin == "0",
        "the plugin serves {of_the_plugin} devices"
    );
    Ok(())
}

/// The driver's pod is started again like all others, so that the kubelet may ask for a claim before
/// the driver has registered.
pub(super) fn rebooted(node: &Node) -> Result<()> {
    let names = ["rebooted", "rebooted-too"];
    let mut before = Vec::new();
    for name in names {
        let pod = by_template(name, "one").that_stays();
        let pod = pod.specified("restartPolicy", "Always");
        before.push(pod.start(node)?);
    }
    let ids = container_ids(node, &names)?;
    node.reboot(|| Ok(()))?;
    let start = Instant::now();
    until_published(node, DEVICES)?;
    let published = start.elapsed();
    node.until("both pods run again", || {
        let now = container_ids(node, &names)?;
        Ok(now.iter().zip(&ids).all(|(now, before)| now != before)
            && names
                .iter()
                .all(|name| node.devices_of(name, "main").is_ok()))
    })?;
    println!(
        "devices published {published:.1?} and pods run {:.1?} after the kubelet's start",
        start.elapsed()
    );
    for (name, before) in names.iter().zip(before) {
        before.number(1)?;
        let after = node.reported(name)?;
        ensure!(before == after, "{name}: first {before:?}, then {after:?}");
    }
    node.delete_pods(&names)
}

/// Returns the ids of the containers of pods with one container.
fn container_ids(node: &Node, pods: &[&str]) -> Result<Vec<String>> {
    let path = "jsonpath={.status.containerStatuses[0].containerID}";
    let id = |pod: &&str| node.kubectl(&["get", "pod", pod, "-o", path]);
    pods.iter().map(id).collect()
}
