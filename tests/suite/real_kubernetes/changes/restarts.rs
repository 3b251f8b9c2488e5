//! Updates, kills and an early end of the plugin while pods arrive.

use std::fs;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::device_plugin::{DevicePlugin, OURS, TRIVIAL};
use crate::real_kubernetes::daemons::Daemon;
use crate::real_kubernetes::node::{Node, list_objects};
use crate::real_kubernetes::overlay::{DEVICES, Overlay};
use crate::real_kubernetes::pod::Pod;

/// The number of updates of the plugin, and of its kills.
pub(super) const ROUNDS: usize = 10;

/// The minimum number of pods that arrive in one round.
const MIN_PODS: usize = 20;

/// The number of pods that arrive at one time.
const PODS_AT_ONCE: usize = 4;

/// The time between two arrivals, for ten pods per second.
const PERIOD: Duration = Duration::from_millis(400);

/// The maximum number of pods that run at one time. A machine that starts fewer than ten pods per
/// second would otherwise get slower with each pod.
const MAX_RUNNING_PODS: usize = 16;

/// The number of pods with a device that run before the node reboots.
const PODS_BEFORE_REBOOT: usize = 6;

/// The sockets that a kubelet may have more after ten updates than before: those of the streams
/// of the present instance, and of requests at that moment.
const MORE_SOCKETS: usize = 20;

/// The time that the plugin may need in addition to a plugin that only registers and answers, in the
/// mean of all kills.
const MAX_TIME_BEYOND_TRIVIAL: Duration = Duration::from_secs(1);

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
pub(super) struct Arrivals<'node> {
    node: &'node Node,
    event: &'static str,
    /// The resource of a plugin that is not ours. Its pods have no devices that can be checked.
    other_resource: Option<&'static str>,
    pub(super) arrived: usize,
    pub(super) refused: usize,
    seconds: f64,
}

impl<'node> Arrivals<'node> {
    pub(super) fn new(node: &'node Node, event: &'static str) -> Self {
        Self {
            node,
            event,
            other_resource: None,
            arrived: 0,
            refused: 0,
            seconds: 0.0,
        }
    }

    /// Lets pods with one device arrive until `has_ended`, and checks those that ran.
    pub(super) fn round(&mut self, mut has_ended: impl FnMut() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        let mut names: Vec<String> = Vec::new();
        while names.len() < MIN_PODS || !has_ended()? {
            ensure!(names.len() < 20 * MIN_PODS, "the plugin is not there again");
            let arrival = Instant::now();
            let first = self.arrived + names.len();
            let pods =
                (first..first + PODS_AT_ONCE).map(|number| self.pod(&format!("arrives-{number}")));
            let pods: Vec<Pod> = pods.collect();
            let manifests: Vec<String> = pods.iter().map(Pod::text).collect();
            self.node.apply(&list_objects(&manifests))?;
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
        let refused = count_refused(self.node, &names, self.other_resource.is_none())?;
        self.refused += refused;
        Ok(())
    }

    fn pod(&self, name: &str) -> Pod {
        let pod = Pod::new(Overlay::Cdi, name, 1);
        match self.other_resource {
            Some(resource) => {
                let limits = json!({ resource: 1 });
                pod.with("/spec/containers/0/resources/limits", limits)
            }
            None => pod,
        }
    }

    pub(super) fn print(&self) {
        println!(
            "refused at {}: {} of {}, at {:.1} per second",
            self.event,
            self.refused,
            self.arrived,
            self.arrived as f64 / self.seconds
        );
    }
}

/// Waits for the end of pods and removes them. Returns how many the kubelet refused. With
/// `checks_devices` each of the others must have had its device.
fn count_refused(node: &Node, names: &[String], checks_devices: bool) -> Result<usize> {
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
        } else if checks_devices {
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
    let mut rollout_times = Duration::ZERO;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        restart_plugin(node)?;
        arrivals.round(|| {
            let has_rolled_out = has_rolled_out(node)?;
            if has_rolled_out {
                rollout_times += start.elapsed();
            }
            Ok(has_rolled_out)
        })?;
    }
    arrivals.print();
    println!(
        "a rollout took {:.1?} in the mean",
        rollout_times / ROUNDS as u32
    );
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

impl DevicePlugin {
    /// Kills the process while pods arrive, and returns the time after which the kubelet has
    /// registered the next one. Each kill is the first one of its pod, which the kubelet starts again
    /// without a delay.
    fn kill(&self, node: &Node, arrivals: &mut Arrivals) -> Result<Duration> {
        let before = self.count_registrations(node)?;
        node.signal(self.program, "KILL")?;
        let start = Instant::now();
        let registered = thread::scope(|scope| {
            let registered = scope.spawn(|| {
                node.until("the kubelet has registered the plugin again", || {
                    Ok(self.count_registrations(node)? > before)
                })?;
                Ok(start.elapsed())
            });
            arrivals
                .round(|| Ok(registered.is_finished() && self.count_devices(node)? == DEVICES))?;
            registered.join().unwrap_or_else(|_| bail!("it panicked"))
        })?;
        self.kubectl(node, &["rollout", "restart", self.daemon_set])?;
        node.until("there is another pod", || {
            let status = ["rollout", "status", self.daemon_set, "--watch=false"];
            let status = self.kubectl(node, &status)?;
            let pods = ["get", "pods", "-l", "test!=yes", "-o", "name"];
            let pods = self.kubectl(node, &pods)?;
            Ok(status.contains("successfully rolled out") && pods.lines().count() == 1)
        })?;
        node.until("it has registered", || {
            Ok(self.count_devices(node)? == DEVICES)
        })?;
        Ok(registered)
    }
}

/// The kubelet refuses pods until it has started the container again and the plugin has registered. No
/// pod may run without its device. What is the kubelet's own part is shown by kills of a trivial plugin
/// in turn, at the same load.
pub(super) fn kills(node: &Node) -> Result<()> {
    TRIVIAL.start(node, DEVICES, None)?;
    let mut ours = Arrivals::new(node, "ten kills");
    let mut others = Arrivals::new(node, "ten kills of a trivial plugin");
    others.other_resource = Some(TRIVIAL.resource);
    let mut times = [Duration::ZERO; 2];
    for _ in 0..ROUNDS {
        times[0] += OURS.kill(node, &mut ours)?;
        times[1] += TRIVIAL.kill(node, &mut others)?;
    }
    ours.print();
    others.print();
    let [ours, others] = times.map(|time| time / ROUNDS as u32);
    println!(
        "registered again {ours:.1?} after a kill, and a trivial plugin {others:.1?}, in the mean"
    );
    TRIVIAL.delete(node)?;
    ensure!(
        ours <= others + MAX_TIME_BEYOND_TRIVIAL,
        "the plugin needs {ours:?}, and a trivial one {others:?}"
    );
    Ok(())
}

/// Of two instances the newer one is told to end, as by a failing probe, while the earlier one
/// still runs. The earlier one serves again before the newer one has ended.
pub(super) fn newer_instance_ends(node: &Node) -> Result<()> {
    let refused = end_newer_instance(node, "TERM")?;
    ensure!(refused == 0, "{refused} pods were refused");
    Ok(())
}

/// The newer instance is killed. The earlier one notices it at once; the kubelet refuses pods that
/// arrive before.
pub(super) fn newer_instance_is_killed(node: &Node) -> Result<()> {
    end_newer_instance(node, "KILL").map(drop)
}

/// Ends the newer of two instances while pods arrive, and returns how many were refused. Later the
/// newer one, which the kubelet starts again, serves.
fn end_newer_instance(node: &Node, signal: &str) -> Result<usize> {
    // The controller ends the earlier instance when the newer one has been ready for so long.
    let stays = |seconds: u32| {
        let patch = format!("{{\"spec\": {{\"minReadySeconds\": {seconds}}}}}");
        let daemon_set = [NAMESPACE, "patch", "daemonset/boathook", "--patch", &patch];
        node.kubectl(&daemon_set).map(drop)
    };
    // The mark names the socket of the instance that the kubelet calls. That of the last handover may
    // still be there.
    let read_mark = || {
        let mark = "/var/lib/kubelet/device-plugins/boathook-dummy.com_npu.handover";
        node.shell(&format!("cat {mark} 2>/dev/null || true"))
    };
    stays(30)?;
    let earlier = node.processes("boathook-plugin")?;
    let earlier_mark = read_mark()?;
    // kubectl refuses a second restart within a second.
    node.until("the plugin is updated", || {
        restart_plugin(node).map(|()| true)
    })?;
    node.until("the newer instance serves", || {
        let mark = read_mark()?;
        Ok(mark.contains(".sock") && mark != earlier_mark)
    })?;
    // An init container has the program as well, and has ended.
    let mut newer = node.processes("boathook-plugin")?;
    newer.retain(|pid| !earlier.contains(pid));
    node.shell(&format!("kill -{signal} {}", newer.join(" ")))?;
    let mut arrivals = Arrivals::new(node, "the end of the newer instance");
    arrivals.round(|| Ok(true))?;
    stays(0)?;
    arrivals.round(|| has_rolled_out(node))?;
    arrivals.print();
    node.until_devices()?;
    Ok(arrivals.refused)
}

/// Waits until a kubelet that has just started has registered the plugin.
pub(super) fn wait_for_registration(node: &Node) -> Result<()> {
    node.until("the kubelet has registered the plugin", || {
        OURS.count_registrations(node).map(|_| true)
    })
}

/// The plugin registers again when the kubelet has made its socket.
pub(super) fn kubelet_restarts(node: &Node) -> Result<()> {
    let start = Instant::now();
    node.restart(Daemon::Kubelet, "TERM")?;
    wait_for_registration(node)?;
    println!("registered {:.1?} after the kubelet's end", start.elapsed());
    node.until_devices()
}

/// The kubelet refuses pods that it starts again before the plugin has registered.
pub(super) fn reboot(node: &Node) -> Result<()> {
    count_refused_at_reboot(node, || Ok(())).map(drop)
}

/// Reboots a node with pods that have devices, and returns how many of them the kubelet refuses.
/// None of the others may be without a device.
pub(super) fn count_refused_at_reboot(
    node: &Node,
    start_services: impl FnOnce() -> Result<()>,
) -> Result<usize> {
    let names: Vec<String> = (0..PODS_BEFORE_REBOOT)
        .map(|number| format!("before-{number}"))
        .collect();
    for name in &names {
        let pod = Pod::new(Overlay::Cdi, name, 1).that_stays();
        let pod = pod.specified("restartPolicy", "Always");
        pod.start(node)?.number(1)?;
    }
    let mut start = Instant::now();
    node.reboot(|| {
        start_services()?;
        start = Instant::now();
        Ok(())
    })?;
    // The status of the node still has the devices of before the reboot, until the kubelet reports.
    wait_for_registration(node)?;
    let registered = start.elapsed();
    node.until_devices()?;
    let mut refused = 0;
    for name in &names {
        let reason = "jsonpath={.status.reason}";
        let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
        node.until("the pod runs again or is refused", || {
            let is_refused =
                node.kubectl(&["get", "pod", name, "-o", reason])? == "UnexpectedAdmissionError";
            Ok(is_refused || node.kubectl(&["get", "pod", name, "-o", restarts])? != "0")
        })?;
        if node.phase(name)? == "Failed" {
            refused += 1;
        } else {
            node.reported(name)?.number(1)?;
        }
    }
    println!(
        "registered {registered:.1?} after the kubelet's start; {refused} of {} pods refused",
        names.len()
    );
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    node.delete_pods(&names)?;
    Ok(refused)
}
