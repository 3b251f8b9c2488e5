//! Devices other than serial ports, and names of the machine's own, for containers that wait.

use anyhow::Result;
use harness::vm::Vm;
use serde_json::json;

use super::case::{Case, expect, wait_for};
use super::stick::{Stick, wait_until_gone};
use super::usb;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "reader-late",
        modules: &[],
        test: reader,
    },
    Case {
        name: "camera-late",
        modules: &[],
        test: camera,
    },
    Case {
        name: "link-late",
        modules: &[],
        test: link,
    },
];

/// A card reader is plugged in, and then moved: a container lists it and reads its strings, and
/// lists nothing else.
fn reader(vm: &mut Vm) -> Result<String> {
    vm.monitor("device_del", json!({ "id": "reader" }))?;
    vm.run(&format!(
        "{}
        systemd-run --unit follow --quiet boathook follow --verbose
        full -d --name reader-late -e READER_VISIBLE_DEVICES=reader-F055? -- sleep 9999",
        usb::READER_CLASS
    ))?;
    let waits = vm.run("boathook list --used reader 2>&1 || true")?;
    expect(&waits, "waiting for \"reader-F055\"")?;
    for usb_port in ["3", "4"] {
        let device = json!({
            "driver": "usb-ccid", "id": "reader-late", "serial": "F055", "bus": "usb.0", "port": usb_port,
        });
        vm.monitor("device_add", device)?;
        let count = "podman exec reader-late sh -c \
            'echo listed: $(lsusb | wc -l) nodes: $(ls /dev/bus/usb/*/* | wc -l)' || true";
        wait_for(vm, count, "listed: 1 nodes: 1\n")?;
        let seen = vm.run("podman exec reader-late lsusb -v 2>&1")?;
        expect(&seen, "QEMU USB CCID")?;
        expect(&seen, "F055")?;
        vm.monitor("device_del", json!({ "id": "reader-late" }))?;
        wait_for(
            vm,
            "podman exec reader-late sh -c 'echo nodes: $(ls /dev/bus/usb/*)'",
            "nodes:\n",
        )?;
    }
    vm.run(&format!(
        "podman rm -ft 0 reader-late; systemctl stop follow; rm {}",
        usb::READER_CLASS_FILE
    ))?;
    vm.monitor("device_add", usb::reader_device())?;
    Ok("a reader is plugged in later and moved: lsusb in a container reads its strings".to_owned())
}

/// The module of a camera is loaded after its containers have started, with another number each
/// time: they read a frame.
fn camera(vm: &mut Vm) -> Result<String> {
    const REQUEST: &str = "-e CAMERA_VISIBLE_DEVICES=camera-vivid.0?";
    const FRAME: &str =
        "[ $(dd if=$(ls /dev/video*) bs=4M count=1 2>/dev/null | wc -c) -gt 0 ] && echo a frame";
    const ENGINES: [&str; 2] = ["docker", "podman"];
    vm.run(&format!(
        "systemd-run --unit follow --quiet boathook follow
        docker run -d --name camera-late --network none --runtime boathook {REQUEST} busybox sleep 9999
        podman run -d --name camera-late --network none {REQUEST} busybox sleep 9999"
    ))?;
    for number in [2, 0] {
        for engine in ENGINES {
            let look = format!("{engine} exec camera-late sh -c 'ls /dev/video*' 2>&1 || true");
            wait_for(vm, &look, "No such file")?;
        }
        vm.run(&format!(
            "modprobe vivid node_types=0x101 vid_cap_nr={number}; udevadm settle"
        ))?;
        for engine in ENGINES {
            let look = format!("{engine} exec camera-late sh -c '{FRAME}' || true");
            wait_for(vm, &look, "a frame")?;
        }
        vm.run("modprobe -r vivid")?;
    }
    vm.run("docker rm -f camera-late; podman rm -ft 0 camera-late; systemctl stop follow")?;
    Ok(
        "a camera's module is loaded later: Docker's and podman's containers read a frame"
            .to_owned(),
    )
}

/// A rule of the machine's own gives a port a name. Containers request it by this name, or have it
/// beside the name of their request.
fn link(vm: &mut Vm) -> Result<String> {
    const STICK: Stick = Stick { serial: "F054" };
    // The engine, the request, and the port's names in the container.
    const CONTAINERS: [(&str, &str, &[&str]); 3] = [
        (
            "docker",
            "/dev/ttyZigbee?",
            &["/dev/ttyZigbee", "/dev/own/zigbee"],
        ),
        (
            "podman",
            "/dev/own/zigbee:/dev/ttyACM7?",
            &["/dev/ttyACM7", "/dev/own/zigbee"],
        ),
        ("docker", "F054?", &["/dev/ttyZigbee"]),
    ];
    let name = |index: usize| format!("link-late-{index}");
    vm.run(
        "cat >/etc/udev/rules.d/99-own.rules <<'END'
SUBSYSTEM==\"tty\", ATTRS{serial}==\"F054\", SYMLINK+=\"ttyZigbee own/zigbee\"
END
        udevadm control --reload; systemd-run --unit follow --quiet boathook follow --verbose",
    )?;
    for (index, (engine, request, _)) in CONTAINERS.iter().enumerate() {
        let runtime = match *engine {
            "docker" => "--runtime boathook",
            _ => "",
        };
        vm.run(&format!(
            "{engine} run -d --name {} --network none {runtime} -e SERIAL_VISIBLE_DEVICES={request} busybox sleep 9999",
            name(index)
        ))?;
    }
    for usb_port in ["3", "4"] {
        STICK.plug_in(vm, usb_port)?;
        for (index, (engine, _, paths)) in CONTAINERS.iter().enumerate() {
            for path in *paths {
                let open = format!(
                    "{engine} exec {} sh -c 'stty -F {path} 9600 && echo opened' 2>&1 || true",
                    name(index)
                );
                wait_for(vm, &open, "opened")?;
            }
        }
        // A container that starts now has it at once.
        let seen = vm.run(
            "docker run --rm --network none --runtime boathook \
                -e SERIAL_VISIBLE_DEVICES=/dev/ttyZigbee busybox stty -F /dev/ttyZigbee 9600 && echo opened",
        )?;
        expect(&seen, "opened")?;
        STICK.pull_out(vm)?;
        for (index, (engine, ..)) in CONTAINERS.iter().enumerate() {
            wait_until_gone(vm, engine, &name(index))?;
            let left = "ls /dev/ttyZigbee /dev/own/zigbee /dev/ttyACM7 2>/dev/null || echo none";
            let look = format!("{engine} exec {} sh -c '{left}'", name(index));
            wait_for(vm, &look, "none")?;
        }
    }
    vm.run(
        "docker rm -f link-late-0 link-late-2; podman rm -ft 0 link-late-1; systemctl stop follow
        rm /etc/udev/rules.d/99-own.rules; udevadm control --reload",
    )?;
    Ok("a port with a name of udev's own rule: containers open it by the name".to_owned())
}
