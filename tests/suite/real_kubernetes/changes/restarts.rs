//! Updates, kills and an early end of the plugin while pods arrive.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::binaries;
use serde_json::json;

use crate::real_kubernetes::node::{BUSYBOX, Node};
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

/// The number of pods with a device that run before the node reboots.
const PODS_BEFORE_REBOOT: usize = 6;

/// The time within which a kubelet that has started reports the devices of the node.
const MAX_TIME_TO_REPORT: Duration = Duration::from_secs(5);

/// The sockets that a kubelet may have more after ten updates than before: those of the streams
/// of the present instance, and of requests at that moment.
const MORE_SOCKETS: usize = 20;

/// The name of the plugin that only registers and answers, and its resource.
const TRIVIAL: &str = "trivial-plugin";
const TRIVIAL_RESOURCE: &str = "example.com/trivial";

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
    /// The resource of a plugin that is not ours. Its pods have no devices that can be checked.
    other_resource: Option<&'static str>,
    arrived: usize,
    refused: usize,
    seconds: f64,
}

impl<'node> Arrivals<'node> {
    fn new(node: &'node Node, event: &'static str) -> Self {
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
    fn round(&mut self, has_ended: impl Fn() -> Result<bool>) -> Result<()> {
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

/// The kubelet's own limit: kills of a plugin that only registers and answers.
pub(super) fn kills_of_a_trivial_plugin(node: &Node) -> Result<()> {
    let program = "/usr/local/sbin/trivial-plugin";
    fs::copy(binaries::program("trivial-plugin")?, node.file(program))?;
    let directory = "/var/lib/kubelet/device-plugins";
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let volume = |name: &str, path: &str| json!({"name": name, "hostPath": {"path": path}});
    let labels = json!({"app": TRIVIAL});
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": TRIVIAL},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "plugin", "image": BUSYBOX, "imagePullPolicy": "Never",
                    "command": [program, directory, TRIVIAL_RESOURCE, DEVICES],
                    "volumeMounts": [mount("sockets", directory), mount("program", program)],
                }],
                "volumes": [volume("sockets", directory), volume("program", program)],
            },
        }},
    });
    node.apply(&manifest.to_string())?;
    let has_devices = || {
        let path = "jsonpath={.items[0].status.allocatable.example\\.com/trivial}";
        Ok(node.kubectl(&["get", "nodes", "-o", path])? == DEVICES)
    };
    node.until("the trivial plugin has registered", has_devices)?;
    let daemon_set = format!("daemonset/{TRIVIAL}");
    let mut arrivals = Arrivals::new(node, "ten kills of a trivial plugin");
    arrivals.other_resource = Some(TRIVIAL_RESOURCE);
    for _ in 0..ROUNDS {
        node.signal(TRIVIAL, "KILL")?;
        arrivals.round(has_devices)?;
        node.kubectl(&["rollout", "restart", &daemon_set])?;
        node.kubectl(&["rollout", "status", &daemon_set, "--timeout=180s"])?;
        node.until("it has registered again", has_devices)?;
    }
    arrivals.print();
    node.kubectl(&["delete", &daemon_set]).map(drop)
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

/// The kubelet refuses pods that it starts again before the plugin has registered. None of the
/// others may have another device than its own.
pub(super) fn reboot(node: &Node) -> Result<()> {
    let names: Vec<String> = (0..PODS_BEFORE_REBOOT)
        .map(|number| format!("before-{number}"))
        .collect();
    for name in &names {
        let pod = Pod::new(Overlay::Cdi, name, 1).that_stays();
        let pod = pod.specified("restartPolicy", "Always");
        pod.start(node)?.number(1)?;
    }
    node.reboot()?;
    let start = Instant::now();
    node.until("the kubelet has reported no devices, or all", || {
        Ok(node.allocatable()? != DEVICES || start.elapsed() > MAX_TIME_TO_REPORT)
    })?;
    node.until_devices()?;
    let registered = start.elapsed();
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
        "all devices {registered:.1?} after the kubelet's start; {refused} of {} pods refused",
        names.len()
    );
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    node.delete_pods(&names)
}
