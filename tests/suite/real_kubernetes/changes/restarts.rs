//! Updates, kills and an early end of the plugin while pods arrive.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::real_kubernetes::node::Node;
use crate::real_kubernetes::overlay::{DEVICES, Overlay};
use crate::real_kubernetes::pod::Pod;

/// The number of updates of the plugin, and of its kills.
const ROUNDS: usize = 10;

/// The minimum number of pods that arrive in one round.
const MIN_PODS: usize = 20;

/// The number of pods that arrive at one time.
const PODS_AT_ONCE: usize = 4;

/// The time between two arrivals, for ten pods per second.
const PERIOD: Duration = Duration::from_millis(400);

/// The maximum number of pods that run at one time. A machine that starts fewer than ten pods per
/// second would otherwise get slower with each pod.
const MAX_RUNNING_PODS: usize = 16;

/// The sockets that a kubelet may have more after ten updates than before: those of the streams
/// of the present instance, and of requests at that moment.
const MORE_SOCKETS: usize = 20;

const NAMESPACE: &str = "--namespace=boathook-system";

pub(in crate::real_kubernetes) fn restart_plugin(node: &Node) -> Result<()> {
    node.kubectl(&[NAMESPACE, "rollout", "restart", "daemonset/boathook"])
        .map(drop)
}

/// Whether each node has the newest pod of the DaemonSet, which is ready, and no other.
fn has_rolled_out(node: &Node) -> Result<bool> {
    let status = node.kubectl(&[
        NAMESPACE,
        "rollout",
        "status",
        "daemonset/boathook",
        "--watch=false",
    ])?;
    let pods = node.kubectl(&[NAMESPACE, "get", "pods", "-o", "name"])?;
    Ok(status.contains("successfully rolled out") && pods.lines().count() == 1)
}

/// The pods that arrived in all rounds of a case.
struct Arrivals<'node> {
    node: &'node Node,
    event: &'static str,
    arrived: usize,
    refused: usize,
    seconds: f64,
}

impl<'node> Arrivals<'node> {
    fn new(node: &'node Node, event: &'static str) -> Self {
        Self {
            node,
            event,
            arrived: 0,
            refused: 0,
            seconds: 0.0,
        }
    }

    /// Lets pods with one device arrive until `has_ended`, and checks those that ran.
    fn round(&mut self, has_ended: impl Fn() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        let mut names: Vec<String> = Vec::new();
        while names.len() < MIN_PODS || !has_ended()? {
            ensure!(names.len() < 20 * MIN_PODS, "the plugin is not there again");
            let arrival = Instant::now();
            let first = self.arrived + names.len();
            let pods = (first..first + PODS_AT_ONCE)
                .map(|number| Pod::new(Overlay::Cdi, &format!("arrives-{number}"), 1));
            let pods: Vec<Pod> = pods.collect();
            let manifests: Vec<String> = pods.iter().map(Pod::text).collect();
            self.node.apply(&manifests.join("\n---\n"))?;
            names.extend(pods.into_iter().map(|pod| pod.name));
            self.node.until("most of the pods have ended", || {
                let unfinished = "--field-selector=status.phase!=Succeeded,status.phase!=Failed";
                let listed = self
                    .node
                    .kubectl(&["get", "pods", "-o", "name", unfinished])?;
                Ok(listed.lines().count() <= MAX_RUNNING_PODS)
            })?;
            sleep(PERIOD.saturating_sub(arrival.elapsed()));
        }
        self.seconds += start.elapsed().as_secs_f64();
        self.arrived += names.len();
        let refused = count_refused(self.node, &names)?;
        self.refused += refused;
        Ok(())
    }

    fn print(&self) {
        println!(
            "refused at {}: {} of {}, at {:.1} per second",
            self.event,
            self.refused,
            self.arrived,
            self.arrived as f64 / self.seconds
        );
    }
}

/// Waits for the end of pods, checks the devices of those that ran, and removes them. Returns how
/// many the kubelet refused.
fn count_refused(node: &Node, names: &[String]) -> Result<usize> {
    let mut refused = 0;
    for name in names {
        node.until(&format!("the pod {name} has ended"), || {
            Ok(["Succeeded", "Failed"].contains(&&*node.phase(name)?))
        })?;
        let status = "jsonpath={.status.reason} {.metadata.creationTimestamp} {.status.message}";
        let status = node.kubectl(&["get", "pod", name, "-o", status])?;
        if status.starts_with("UnexpectedAdmissionError ") {
            println!("{name}: {status}");
            refused += 1;
        } else {
            let devices = node.devices_of(name, "main");
            devices
                .and_then(|devices| devices.number(1))
                .with_context(|| name.clone())?;
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    node.delete_pods(&names)?;
    Ok(refused)
}

/// Returns how many sockets the kubelet has.
fn count_sockets(node: &Node) -> Result<usize> {
    let mut sockets = 0;
    for pid in node.processes("kubelet")? {
        for descriptor in fs::read_dir(node.file(&format!("/proc/{pid}/fd")))?.flatten() {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
        }
    }
    Ok(sockets)
}

/// The kubelet keeps no connection to an instance that has ended.
pub(super) fn rolling_updates(node: &Node) -> Result<()> {
    let before = count_sockets(node)?;
    let mut arrivals = Arrivals::new(node, "ten rolling updates");
    for _ in 0..ROUNDS {
        restart_plugin(node)?;
        arrivals.round(|| has_rolled_out(node))?;
    }
    arrivals.print();
    let after = count_sockets(node)?;
    println!("sockets of the kubelet: {before} before, {after} after");
    let refused = arrivals.refused;
    ensure!(refused == 0, "{refused} pods were refused");
    ensure!(
        after <= before + MORE_SOCKETS,
        "the kubelet had {before} sockets, and has {after}"
    );
    Ok(())
}

/// The kubelet refuses pods until it has started the container again. No pod may run without its
/// device. Each kill is the first one of its pod, which the kubelet starts again without a delay.
pub(super) fn kills(node: &Node) -> Result<()> {
    let mut arrivals = Arrivals::new(node, "ten kills");
    for _ in 0..ROUNDS {
        node.signal("boathook-plugin", "KILL")?;
        arrivals.round(|| Ok(node.allocatable()? == DEVICES))?;
        restart_plugin(node)?;
        node.until("there is another pod", || has_rolled_out(node))?;
        node.until_devices()?;
    }
    arrivals.print();
    Ok(())
}

/// Of two instances the newer one is told to end, as by a failing probe, while the earlier one
/// still runs. The earlier one serves again, and later the newer one.
pub(super) fn newer_instance_ends(node: &Node) -> Result<()> {
    // The controller ends the earlier instance when the newer one has been ready for so long.
    let stays = |seconds: u32| {
        let patch = format!("{{\"spec\": {{\"minReadySeconds\": {seconds}}}}}");
        let daemon_set = [NAMESPACE, "patch", "daemonset/boathook", "--patch", &patch];
        node.kubectl(&daemon_set).map(drop)
    };
    stays(30)?;
    let earlier = node.processes("boathook-plugin")?;
    restart_plugin(node)?;
    // An init container has the program as well, and ends.
    node.until("the newer instance serves", || {
        let marks = node.shell("ls /var/lib/kubelet/device-plugins")?;
        Ok(marks.contains("dummy.com_npu.handover"))
    })?;
    let mut newer = node.processes("boathook-plugin")?;
    newer.retain(|pid| !earlier.contains(pid));
    node.shell(&format!("kill -TERM {}", newer.join(" ")))?;
    let mut arrivals = Arrivals::new(node, "the end of the newer instance");
    arrivals.round(|| Ok(true))?;
    stays(0)?;
    arrivals.round(|| has_rolled_out(node))?;
    arrivals.print();
    node.until_devices()
}
