//! The plugin as a service of the host, which the chart installs: a reboot, reloads and restarts. The
//! node has no systemd, so the test itself starts what the unit says, at its place in the order of a
//! boot.

use std::fs;
use std::os::unix::net::UnixDatagram;

use anyhow::{Context, Result, ensure};
use harness::binaries;
use harness::captured::Captured;
use serde_json::json;
use std::process::Command;

use super::day_two::run_commands;
use super::restarts::{Arrivals, ROUNDS, count_refused_at_reboot};
use super::{MEMORY, install_first, metrics};
use crate::real_kubernetes::node::Node;
use crate::real_kubernetes::overlay::{DEVICES, Overlay};
use crate::real_kubernetes::pod::Pod;

/// The link that enables the service.
const UNIT: &str = "/etc/systemd/system/multi-user.target.wants/boathook-plugin.service";

/// The file with labels of the node, from which Node Feature Discovery reads them.
const LABELS: &str = "/etc/kubernetes/node-feature-discovery/features.d/boathook";

/// Runs what the unit $unit says, one command after the other, as systemd does.
const START: &str = r#"
    sed -n 's/^ExecStartPre=//p' "$unit" | while read -r command; do $command; done
    exec $(sed -n 's/^ExecStart=//p' "$unit")
"#;

/// Runs the command by which the unit $unit reloads, as `systemctl reload` does, which the installer
/// calls with a new version. Pods arrive before.
const RELOAD: &str = r#"
    sleep 1
    MAINPID=$(pidof boathook-plugin)
    eval "exec $(sed -n 's/^ExecReload=//p' "$unit")"
"#;

/// Ends the service and waits for its end, as `systemctl restart` does. Pods arrive before.
const END: &str = r#"
    sleep 1
    pid=$(pidof boathook-plugin)
    kill -TERM "$pid"
    while [ -e "/proc/$pid" ]; do sleep 0.01; done
"#;

const NAMESPACE: &str = "--namespace=boathook-system";

/// Returns the objects of the chart.
fn manifests(node: &Node) -> Result<String> {
    let values = json!({
        "classes": {"enabled": ["dummy-npu"]},
        "plugin": {"hostService": true},
        "monitoring": {"enabled": true},
        "nodeLabels": true,
        "resources": {"install": {"limits": {"memory": MEMORY}}},
    });
    let file = node.directory("host-service")?.join("values.json");
    fs::write(&file, values.to_string())?;
    let script = binaries::source_tree().join("scripts/helm-template");
    let rendered = Captured::run(Command::new(script).arg(file))?;
    Ok(rendered.success()?.stdout)
}

fn start(node: &Node) -> Result<()> {
    node.start_script(&format!("unit={UNIT}; {START}"))
}

/// The init container installs the service and enables it. The unit starts before the kubelet, which
/// is the place that [`reboot`] gives it. The pod is ready when the service is, and has its metrics.
pub(super) fn install(node: &Node) -> Result<()> {
    node.kubectl(&[NAMESPACE, "delete", "daemonset", "boathook"])?;
    node.apply(&manifests(node)?)?;
    node.until("the service is installed", || {
        Ok(node.shell(&format!("test -e {UNIT}")).is_ok())
    })?;
    let ready = ["get", "daemonset", "boathook", "-o"];
    let ready = [
        &[NAMESPACE],
        &ready[..],
        &["jsonpath={.status.numberReady}"],
    ]
    .concat();
    ensure!(
        node.kubectl(&ready)?.trim() == "0",
        "ready without the service"
    );
    start(node)?;
    node.rolled_out()?;
    let unit = node.shell(&format!("cat {UNIT}"))?;
    let order = unit.lines().filter(|line| line.starts_with("Before="));
    ensure!(
        order
            .into_iter()
            .any(|line| line.contains("kubelet.service")),
        "{unit}"
    );
    node.until_devices()?;
    Pod::new(Overlay::Cdi, "by-the-service", 2)
        .run(node)?
        .number(2)?;
    let labels = node.shell(&format!("cat {LABELS}"))?;
    ensure!(labels.contains("dummy.com/npu.count=64"), "{labels}");
    metrics(node)
}

pub(super) fn reboot(node: &Node) -> Result<()> {
    let refused = count_refused_at_reboot(node, || start(node))?;
    ensure!(refused == 0, "{refused} pods were refused");
    Ok(())
}

/// Runs the page's commands but those that enter the plugin's container, or print its log: the plugin
/// is not in it.
pub(super) fn day_two(node: &Node) -> Result<()> {
    run_commands(node, &[" exec ", "-c plugin --since"])
}

/// The next instance serves before the earlier one ends, and becomes the service's main process.
pub(super) fn reloads(node: &Node) -> Result<()> {
    let path = node.directory("host-service")?.join("notify");
    let messages = UnixDatagram::bind(&path)?;
    messages.set_nonblocking(true)?;
    let reload = format!(
        "unit={UNIT}; export NOTIFY_SOCKET={}; {RELOAD}",
        path.display()
    );
    let mut arrivals = Arrivals::new(node, "ten reloads of the service");
    for _ in 0..ROUNDS {
        let earlier = node.processes("boathook-plugin")?;
        node.start_script(&reload)?;
        let mut main_process = String::new();
        arrivals.round(|| {
            let mut message = [0; 64];
            if let Ok(length) = messages.recv(&mut message) {
                main_process = String::from_utf8(message[..length].to_vec())?;
            }
            let instances = node.processes("boathook-plugin")?;
            let is_another = instances != earlier
                && main_process.trim_end() == format!("MAINPID={}", instances.join(" "));
            Ok(is_another && node.allocatable()? == DEVICES)
        })?;
    }
    arrivals.print();
    let refused = arrivals.refused;
    ensure!(refused == 0, "{refused} pods were refused");
    Ok(())
}

/// The kubelet refuses pods that arrive between the end of the service and its next registration.
pub(super) fn restarts(node: &Node) -> Result<()> {
    let mut arrivals = Arrivals::new(node, "ten restarts of the service");
    for _ in 0..ROUNDS {
        let before = node.processes("boathook-plugin")?;
        node.start_script(&format!("unit={UNIT}; {END}{START}"))?;
        arrivals.round(|| {
            let is_another = node
                .processes("boathook-plugin")
                .is_ok_and(|pids| pids != before);
            Ok(is_another && node.allocatable()? == DEVICES)
        })?;
        node.until_devices()?;
    }
    arrivals.print();
    Ok(())
}

/// As docs/administration.md has it.
pub(super) fn back(node: &Node) -> Result<()> {
    node.kubectl(&[NAMESPACE, "delete", "daemonset", "boathook"])?;
    let installer = "/opt/boathook/current/bin/boathook-init";
    node.shell(&format!("{installer} install --engine none"))?;
    ensure!(
        node.shell(&format!("test -e {UNIT}")).is_err(),
        "it is enabled"
    );
    node.signal("boathook-plugin", "TERM")
        .context("the service ran")?;
    node.kubectl_with(&["delete", "--ignore-not-found"], &manifests(node)?)?;
    install_first(node)
}
