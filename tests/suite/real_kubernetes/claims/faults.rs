//! Faults of claims and of the driver while pods have devices.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{NAMESPACE, by_template, rolled_out, until_published};
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

pub(super) fn driver_killed(node: &Node) -> Result<()> {
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
