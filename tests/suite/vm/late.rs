//! Devices that are not there when their containers start (docs/running-containers.md).

use anyhow::{Result, ensure};
use harness::vm::Vm;
use serde_json::json;

use super::case::{Case, expect, wait_for};

/// The far end of the port's line. No device is connected to it when the machine boots.
pub(super) const HARDWARE: &str =
    "-chardev socket,id=late-line,path={dir}/late-line,server=on,wait=off";

pub(super) const CASES: &[Case] = &[Case {
    name: "late",
    modules: &[],
    test: late,
}];

const ENGINES: [&str; 2] = ["docker", "podman"];

/// A port that containers of two engines request by its serial number is absent at the boot, and
/// is plugged in, moved, reset with the whole hub, and pulled out.
fn late(vm: &mut Vm) -> Result<String> {
    const REQUEST: &str = "-e SERIAL_VISIBLE_DEVICES=F074?";
    vm.run(&format!(
        "systemd-run --unit follow --quiet boathook follow --verbose
        docker run -d --name docker-late --restart always --network none --runtime boathook {REQUEST} busybox sleep 9999
        podman run -d --name podman-late --network none --cap-add MKNOD {REQUEST} busybox sleep 9999"
    ))?;
    wait_for_ports(vm, "docker", "ports:\n")?;
    expect(&vm.run("boathook doctor docker-late 2>&1 || true")?, "F074")?;

    plug_in(vm, 3)?;
    wait_until_usable(vm)?;
    // The other port of the machine, which no container of this case has requested.
    let refused = vm.run(
        "podman exec podman-late sh -c '[ -e /dev/other ] || mknod /dev/other c 188 0; exec 3<>/dev/other' 2>&1 || true",
    )?;
    expect(&refused, "Operation not permitted")?;

    pull_out(vm)?;
    plug_in(vm, 4)?;
    wait_until_usable(vm)?;

    // All devices of the bus go and come at once, as when a hub resets.
    vm.run(
        "cd /sys/bus/pci/drivers/xhci_hcd; controller=$(ls -d 0000:*); echo $controller >unbind
        sleep 1; echo $controller >bind; udevadm settle",
    )?;
    wait_until_usable(vm)?;

    vm.run("docker restart -t 0 docker-late; podman restart -t 0 podman-late")?;
    wait_until_usable(vm)?;

    pull_out(vm)?;
    vm.run("systemctl restart docker; podman restart -t 0 podman-late")?;
    wait_for(
        vm,
        "docker ps --format '{{.Names}} {{.Status}}'",
        "docker-late Up",
    )?;
    plug_in(vm, 3)?;
    wait_until_usable(vm)?;

    // The engine has created the container, and not yet started it.
    vm.run("docker rm -f docker-late; docker create --name docker-late --network none --runtime boathook -e SERIAL_VISIBLE_DEVICES=F074? busybox sleep 9999")?;
    vm.monitor("device_del", json!({ "id": "late" }))?;
    wait_for_ports(vm, "podman", "ports:\n")?;
    vm.run("docker start docker-late")?;
    plug_in(vm, 4)?;
    wait_until_usable(vm)?;

    vm.run("docker rm -f docker-late; podman rm -ft 0 podman-late; systemctl stop follow")?;
    vm.monitor("device_del", json!({ "id": "late" }))?;
    Ok(
        "absent at the boot, plugged in later, moved, the hub reset, Docker restarted without it, \
        pulled out between create and start: Docker's and podman's containers have it each time"
            .to_owned(),
    )
}

fn plug_in(vm: &mut Vm, usb_port: u8) -> Result<()> {
    let device = json!({
        "driver": "usb-serial", "id": "late", "chardev": "late-line", "always-plugged": true,
        "serial": "F074", "bus": "usb.0", "port": usb_port.to_string(),
    });
    vm.monitor("device_add", device)?;
    wait_for(vm, "boathook list serial-port || true", "F074")?;
    Ok(())
}

/// Waits until no container has the port any more.
fn pull_out(vm: &mut Vm) -> Result<()> {
    vm.monitor("device_del", json!({ "id": "late" }))?;
    for engine in ENGINES {
        wait_for_ports(vm, engine, "ports:\n")?;
    }
    Ok(())
}

/// Waits until a program of each container has opened the port, which is not the machine's other
/// one.
fn wait_until_usable(vm: &mut Vm) -> Result<()> {
    for engine in ENGINES {
        let open = format!(
            "{engine} exec {engine}-late sh -c 'for port in /dev/ttyUSB*; do stty -F $port 9600 && echo opened: $port; done' 2>&1 || true"
        );
        let opened = wait_for(vm, &open, "opened: /dev/ttyUSB")
            .or_else(|error| Err(error.context(vm.run("journalctl -u follow")?)))?;
        ensure!(opened.lines().count() == 1, "{engine}: {opened}");
    }
    Ok(())
}

fn wait_for_ports(vm: &mut Vm, engine: &str, ports: &str) -> Result<()> {
    let list =
        format!("{engine} exec {engine}-late sh -c 'echo ports: $(ls /dev | grep ttyUSB)' || true");
    wait_for(vm, &list, ports).map(drop)
}
