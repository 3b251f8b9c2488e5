//! Devices that are not there when their containers start (docs/running-containers.md).

use anyhow::Result;
use harness::vm::Vm;

use super::case::{Case, expect, wait_for};
use super::stick::{ANY_PORT, Stick, wait_until_gone, wait_until_usable};

pub(super) const CASES: &[Case] = &[Case {
    name: "late",
    modules: &[],
    test: late,
}];

const STICK: Stick = Stick { serial: "F074" };
const CONTAINERS: [(&str, &str); 2] = [("docker", "docker-late"), ("podman", "podman-late")];

/// A port that containers of two engines request by its serial number is absent at the boot, and
/// is plugged in, moved, reset with the whole hub, and pulled out.
fn late(vm: &mut Vm) -> Result<String> {
    const REQUEST: &str = "-e SERIAL_VISIBLE_DEVICES=F074?";
    vm.run(&format!(
        "systemd-run --unit follow --quiet boathook follow --verbose
        docker run -d --name docker-late --restart always --network none --runtime boathook {REQUEST} busybox sleep 9999
        podman run -d --name podman-late --network none --cap-add MKNOD {REQUEST} busybox sleep 9999"
    ))?;
    wait_until_gone(vm, "docker", "docker-late")?;
    expect(&vm.run("boathook doctor docker-late 2>&1 || true")?, "F074")?;

    STICK.plug_in(vm, "3")?;
    wait_until_all_usable(vm)?;
    // The other port of the machine, which no container of this case has requested.
    let refused = vm.run(
        "podman exec podman-late sh -c '[ -e /dev/other ] || mknod /dev/other c 188 0; exec 3<>/dev/other' 2>&1 || true",
    )?;
    expect(&refused, "Operation not permitted")?;

    pull_out(vm)?;
    STICK.plug_in(vm, "4")?;
    wait_until_all_usable(vm)?;

    // All devices of the bus go and come at once, as when a hub resets.
    vm.run(
        "cd /sys/bus/pci/drivers/xhci_hcd; controller=$(ls -d 0000:*); echo $controller >unbind
        sleep 1; echo $controller >bind; udevadm settle",
    )?;
    wait_until_all_usable(vm)?;

    vm.run("docker restart -t 0 docker-late; podman restart -t 0 podman-late")?;
    wait_until_all_usable(vm)?;

    pull_out(vm)?;
    vm.run("systemctl restart docker; podman restart -t 0 podman-late")?;
    wait_for(
        vm,
        "docker ps --format '{{.Names}} {{.Status}}'",
        "docker-late Up",
    )?;
    STICK.plug_in(vm, "3")?;
    wait_until_all_usable(vm)?;

    // The engine has created the container, and not yet started it.
    vm.run("docker rm -f docker-late; docker create --name docker-late --network none --runtime boathook -e SERIAL_VISIBLE_DEVICES=F074? busybox sleep 9999")?;
    STICK.pull_out(vm)?;
    wait_until_gone(vm, "podman", "podman-late")?;
    vm.run("docker start docker-late")?;
    STICK.plug_in(vm, "4")?;
    wait_until_all_usable(vm)?;

    vm.run("docker rm -f docker-late; podman rm -ft 0 podman-late; systemctl stop follow")?;
    STICK.pull_out(vm)?;
    Ok(
        "absent at the boot, plugged in later, moved, the hub reset, Docker restarted without it, \
        pulled out between create and start: Docker's and podman's containers have it each time"
            .to_owned(),
    )
}

/// Waits until no container has the port any more.
fn pull_out(vm: &mut Vm) -> Result<()> {
    STICK.pull_out(vm)?;
    for (engine, name) in CONTAINERS {
        wait_until_gone(vm, engine, name)?;
    }
    Ok(())
}

/// Waits until a program of each container has opened the port, which is not the machine's other
/// one.
fn wait_until_all_usable(vm: &mut Vm) -> Result<()> {
    for (engine, name) in CONTAINERS {
        wait_until_usable(vm, engine, name, ANY_PORT)?;
    }
    Ok(())
}
