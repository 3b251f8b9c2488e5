//! Containers that run, and whose devices come and go (docs/running-containers.md).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::vm::Vm;
use serde_json::json;

use super::case::{Case, expect, wait_for};
use super::usb;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "port-followed",
        modules: &[],
        test: port,
    },
    Case {
        name: "camera-followed",
        modules: &["vivid node_types=0x101"],
        test: camera,
    },
];

/// The number of times that the port is unplugged and plugged in again.
const REPLUGS: usize = 20;

/// Talks to the port that is there, and opens it again whenever nothing is answered.
const TALK: &str = "while :; do for port in /dev/ttyUSB*; do [ -c \"$port\" ] || continue; \
    stty -F $port 115200 raw -echo && { echo ready >&3; read -t 2 -r line <&3 && echo \"answer: $line\"; } 3<>$port; \
    done 2>/dev/null; sleep 0.1; done";

/// A port is unplugged while a container reads from it, and comes back, on most kernels with
/// another number every second time; systemd reads its units again after each.
fn port(vm: &mut Vm) -> Result<String> {
    wait_for(vm, "boathook list serial-port", "serial-1-1:1.0")?;
    vm.run(&format!(
        "systemd-run --unit follow --quiet boathook follow --verbose
        docker run -d --name talks --network none --runtime boathook \
            -e SERIAL_VISIBLE_DEVICES=serial-1-1:1.0 busybox sh -c '{TALK}'"
    ))?;
    // The links of the container in /dev/serial lead to the port, or there are none.
    let root = "/proc/$(docker inspect -f '{{.State.Pid}}' talks)/root";
    let ports = format!(
        "cd {root}/dev; echo ports: $(ls | grep ttyUSB) links: $(ls -l serial/by-id 2>/dev/null | sed -n 's|.*/||p')"
    );
    let (mut name, mut numbers) = ("ttyUSB0".to_owned(), BTreeSet::new());
    for round in 0..REPLUGS {
        // An old number stays taken for as long as somebody has the port open.
        if round % 2 == 1 {
            let holds = format!("trap \"\" HUP; exec 3<>/dev/{name}; sleep 999");
            vm.run(&format!(
                "systemd-run --unit holder --quiet sh -c '{holds}'"
            ))?;
            let files = "ls -l /proc/$(systemctl show -P MainPID holder)/fd";
            wait_for(vm, files, &name)?;
        }
        vm.monitor("device_del", json!({ "id": "port" }))?;
        wait_for(vm, &ports, "ports: links:\n")?;
        vm.run("systemctl daemon-reload")?;
        vm.monitor("device_add", usb::port())?;
        let found = wait_for(vm, "ls /sys/class/tty | grep ttyUSB || true", "ttyUSB")?;
        name = found.trim().to_owned();
        let came = wait_for(vm, &ports, &format!("ports: {name} links: {name}\n"));
        came.or_else(|error| Err(error.context(said(vm)?)))?;
        numbers.insert(name.clone());
        vm.run("systemctl daemon-reload; systemctl stop holder 2>/dev/null || true")?;
        answer(vm, round)?;
        wait_for(vm, "docker logs talks", &format!("answer: hello {round}\n"))?;
    }
    let seen = vm.run(
        "docker exec talks sh -c '[ -e /dev/other ] || mknod /dev/other c 188 7; exec 3<>/dev/other' 2>&1 || true
        docker rm -f talks >&2; systemctl stop follow",
    )?;
    expect(&seen, "Operation not permitted")?;
    Ok(format!(
        "replugged {REPLUGS} times, as {numbers:?}, daemon-reload after each: the container's \
         program reads from it again"
    ))
}

/// Returns the nodes of the container, and the log of `boathook follow`.
fn said(vm: &mut Vm) -> Result<String> {
    vm.run("boathook list serial-port; ls -l /dev/serial/by-id /dev/ttyUSB* 2>&1 || true; journalctl -u follow")
}

/// Waits at the line's other end until the container is ready, and answers.
fn answer(vm: &Vm, round: usize) -> Result<()> {
    let line = UnixStream::connect(vm.directory().join("line"))?;
    line.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut said = String::new();
    let mut reader = BufReader::new(&line);
    while !said.ends_with("ready\n") {
        let length = reader.read_line(&mut said);
        ensure!(
            length.context("the container is silent")? > 0,
            "the port is gone"
        );
    }
    (&line).write_all(format!("hello {round}\n").as_bytes())?;
    Ok(())
}

/// The module of a camera is loaded again, with another number of the camera: a container of
/// each engine reads a frame, one that had the camera from the start and one that it was
/// attached to.
fn camera(vm: &mut Vm) -> Result<String> {
    const FRAME: &str =
        "[ $(dd if=$(ls /dev/video*) bs=4M count=1 2>/dev/null | wc -c) -gt 0 ] && echo a frame";
    vm.run(
        "systemd-run --unit follow --quiet boathook follow
        one=CAMERA_VISIBLE_DEVICES=camera-vivid.0 forever='busybox sleep 9999'
        docker run -d --name docker-starts --network none --runtime boathook -e $one $forever
        podman run -d --name podman-starts --network none -e $one $forever
        docker run -d --name docker-attached --network none $forever
        podman run -d --name podman-attached --network none $forever
        for name in docker-attached podman-attached; do boathook attach $name v4l2-camera=camera-vivid.0; done",
    )?;
    let containers = ["docker", "podman"].map(|engine| [(engine, "starts"), (engine, "attached")]);
    let containers = containers.concat();
    for number in [0, 5, 5, 0, 3] {
        for (engine, which) in &containers {
            let look = format!("{engine} exec {engine}-{which} sh -c '{FRAME}' || true");
            wait_for(vm, &look, "a frame")?;
        }
        vm.run("modprobe -r vivid; systemctl daemon-reload")?;
        for (engine, which) in &containers {
            let look =
                format!("{engine} exec {engine}-{which} sh -c 'ls /dev/video*' 2>&1 || true");
            wait_for(vm, &look, "No such file")?;
        }
        vm.run(&format!(
            "modprobe vivid node_types=0x101 vid_cap_nr={number}; udevadm settle; systemctl daemon-reload"
        ))?;
    }
    vm.run("docker update --cpu-shares 512 docker-attached; podman update --cpu-shares 512 podman-attached")?;
    for engine in ["docker", "podman"] {
        let seen = vm.run(&format!(
            "boathook list --used v4l2-camera >&2
            {engine} exec {engine}-attached sh -c '{FRAME}'
            boathook detach {engine}-attached v4l2-camera=camera-vivid.0 >&2
            {engine} exec {engine}-attached sh -c 'ls /dev/video*' 2>&1 || true"
        ))?;
        expect(&seen, "a frame")?;
        expect(&seen, "No such file")?;
    }
    vm.run(
        "docker rm -f docker-starts docker-attached; podman rm -ft 0 podman-starts podman-attached
        systemctl stop follow; modprobe -r vivid",
    )?;
    Ok(
        "the module loaded again 5 times, with other numbers: Docker's and podman's containers \
        read a frame, those that it was attached to, too"
            .to_string(),
    )
}
