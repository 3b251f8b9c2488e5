//! Several devices behind one hub, which go and come at once.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use harness::vm::Vm;
use serde_json::json;

use super::case::{Case, expect, wait_for};
use super::stick::{ANY_PORT, Stick, wait_until_gone, wait_until_usable};

pub(super) const CASES: &[Case] = &[Case {
    name: "hub",
    modules: &[],
    test: hub,
}];

/// The adapters, and the ports into which they are plugged. Each has a container of its own.
const STICKS: [(Stick, &str); 3] = [
    (Stick { serial: "F051" }, "3.1"),
    (Stick { serial: "F052" }, "3.2"),
    (Stick { serial: "F053" }, "3.3"),
];

/// The commands after which the kernel finds all devices of the hub again. They run in the hub's
/// directory.
const RESETS: [(&str, &str); 3] = [
    (
        "a reset",
        "usbreset $(printf %03d/%03d $(cat busnum devnum))",
    ),
    (
        "its driver bound again",
        "echo 1-3:1.0 >1-3:1.0/driver/unbind; sleep 1; echo 1-3:1.0 >/sys/bus/usb/drivers/hub/bind",
    ),
    (
        "refused and allowed",
        "echo 0 >authorized; sleep 1; echo 1 >authorized",
    ),
];

/// All ports of a hub go and come back, with other numbers, since somebody on the host has one of
/// them open. Each container has its own one again, and is refused the others.
fn hub(vm: &mut Vm) -> Result<String> {
    vm.run("systemd-run --unit follow --quiet boathook follow --verbose")?;
    for (Stick { serial }, _) in &STICKS {
        vm.run(&format!(
            "docker run -d --name hub-{serial} --network none --runtime boathook \
                -e SERIAL_VISIBLE_DEVICES={serial}? busybox sleep 9999"
        ))?;
    }
    let hub = json!({ "driver": "usb-hub", "id": "hub", "bus": "usb.0", "port": "3" });
    vm.monitor("device_add", hub)?;
    for (stick, usb_port) in &STICKS {
        stick.plug_in(vm, usb_port)?;
    }
    let mut ports = wait_for_own_ports(vm)?;
    let mut seen = BTreeSet::from([ports.clone()]);
    for (event, lines) in RESETS {
        // The kernel hangs up the port, which keeps its number until it is closed.
        let holds = format!("trap \"\" HUP; exec 3<>{}; sleep 999", ports[0]);
        vm.run(&format!(
            "systemd-run --unit holder --quiet sh -c '{holds}'"
        ))?;
        let files = "ls -l /proc/$(systemctl show -P MainPID holder)/fd";
        wait_for(vm, files, &ports[0])?;
        vm.run(&format!("cd /sys/bus/usb/devices/1-3; {lines}"))?;
        // When the first one is back, all have been away.
        let other = format!(
            "readlink -f /dev/serial/by-id/*{}* | grep -v {}$ || true",
            STICKS[0].0.serial, ports[0]
        );
        wait_for(vm, &other, ANY_PORT).context(event)?;
        vm.run("udevadm settle")?;
        ports = wait_for_own_ports(vm).context(event)?;
        seen.insert(ports.clone());
        vm.run("systemctl stop holder")?;
    }
    for ((stick, _), others) in STICKS.iter().zip([&ports[1..], &ports[2..], &ports[..1]]) {
        let number = vm.run(&format!("stat -c '%Hr %Lr' {}", others[0]))?;
        let refused = vm.run(&format!(
            "docker exec hub-{} sh -c 'mknod /dev/other c {}; exec 3<>/dev/other' 2>&1 || true",
            stick.serial,
            number.trim()
        ))?;
        expect(&refused, "Operation not permitted")?;
    }
    for (stick, _) in &STICKS {
        stick.pull_out(vm)?;
        wait_until_gone(vm, "docker", &format!("hub-{}", stick.serial))?;
    }
    vm.monitor("device_del", json!({ "id": "hub" }))?;
    vm.run("docker rm -f hub-F051 hub-F052 hub-F053; systemctl stop follow")?;
    let events: Vec<_> = RESETS.iter().map(|(event, _)| *event).collect();
    Ok(format!(
        "the hub {}: three containers have their own port each time: {seen:?}",
        events.join(", ")
    ))
}

/// Waits until each container has opened the port that is its own on the host. Returns the ports.
fn wait_for_own_ports(vm: &mut Vm) -> Result<Vec<String>> {
    let mut ports = Vec::new();
    for (Stick { serial }, _) in &STICKS {
        let links = format!("readlink -f /dev/serial/by-id/*{serial}* || true");
        let port = wait_for(vm, &links, ANY_PORT)?.trim().to_owned();
        wait_until_usable(vm, "docker", &format!("hub-{serial}"), &port)?;
        ports.push(port);
    }
    Ok(ports)
}
