//! Devices on QEMU's USB.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::vm::Vm;
use serde_json::{Value, json};

use super::case::{Case, expect, wait_for};

pub(super) const HARDWARE: &str = "-device qemu-xhci,id=usb \
    -chardev socket,id=line,path={dir}/line,server=on,wait=off \
    -device usb-serial,id=port,chardev=line,always-plugged=on,bus=usb.0,port=1 -device usb-ccid,id=reader,bus=usb.0,port=2";

/// A class for QEMU's reader: the shipped one with other ids, as its comment says.
pub(super) const READER_CLASS: &str = "mkdir -p /etc/boathook/classes.d
    sed 's/054c/08e6/; s/06c1/4433/; s/felica/reader/; s/FELICA/READER/' \
        /opt/boathook/current/classes.d/usb-reader.toml >/etc/boathook/classes.d/reader.toml";
pub(super) const READER_CLASS_FILE: &str = "/etc/boathook/classes.d/reader.toml";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "serial",
        modules: &[],
        test: serial,
    },
    Case {
        name: "replugged",
        modules: &[],
        test: replugged,
    },
    Case {
        name: "reader",
        modules: &[],
        test: reader,
    },
];

/// The port, for QEMU's monitor to plug in again.
pub(super) fn port() -> Value {
    json!({
        "driver": "usb-serial", "id": "port", "chardev": "line", "always-plugged": true, "bus": "usb.0", "port": "1",
    })
}

/// Bytes go through to the other end of the line, and back.
fn serial(vm: &mut Vm) -> Result<String> {
    wait_for(vm, "boathook list serial-port", "serial-1-1:1.0")?;
    talk(vm, "-e SERIAL_VISIBLE_DEVICES=serial-1-1:1.0")?;
    Ok("a line to the port's other end, and one back".to_string())
}

/// Runs a container with these options that talks to the port.
fn talk(vm: &mut Vm, options: &str) -> Result<()> {
    let line = UnixStream::connect(vm.directory().join("line"))?;
    line.set_read_timeout(Some(Duration::from_secs(120)))?;
    let answered = std::thread::spawn(move || -> Result<String> {
        let mut said = String::new();
        BufReader::new(&line).read_line(&mut said)?;
        (&line).write_all(b"hello\n")?;
        Ok(said)
    });
    let seen = vm.run(&format!(
        "full {options} -- /root/programs/serial-talk /dev/ttyUSB0"
    ))?;
    let said = answered.join().ok().context("the other end panicked")??;
    expect(&said, "ready")?;
    expect(&seen, "answer: hello")
}

/// The plugin and new containers see a port that is unplugged and plugged in again.
fn replugged(vm: &mut Vm) -> Result<String> {
    // A device that was forgotten is in no line.
    const DEVICES: &str = "exec 3<>/dev/tcp/127.0.0.1/9911; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; \
        grep '^boathook_devices.*serial.*\"healthy\"' <&3 || echo '{} 0'";
    vm.run(
        "cp /etc/boathook/config.toml /run/config.toml
        printf '[class.serial-port]\\nenabled = true\\n' >>/etc/boathook/config.toml
        systemd-run --unit plugin --quiet boathook-plugin run --http 127.0.0.1:9911 --rescan 3600 --forget 1",
    )?;
    let plugged = wait_for(vm, DEVICES, "} 1")?;
    vm.monitor("device_del", json!({ "id": "port" }))?;
    wait_for(
        vm,
        "boathook list serial-port 2>&1 || true; echo .",
        "no devices",
    )?;
    wait_for(vm, DEVICES, "} 0")?;
    // crun does not show the hook's message.
    let refused = vm
        .run("! full -e SERIAL_VISIBLE_DEVICES=serial-1-1:1.0 -- true 2>/dev/null; boathook log")?;
    expect(&refused, "serial-1-1:1.0")?;
    vm.monitor("device_add", port())?;
    wait_for(vm, DEVICES, &plugged)?;
    vm.run("boathook cdi generate serial-port >&2")?;
    talk(vm, "--device devices.boathook.dev/serial=serial-1-1:1.0")?;
    vm.run("rm /etc/cdi/boathook-devices.boathook.dev-serial.json /run/cdi/boathook-devices.boathook.dev-serial.json 2>/dev/null || true; systemctl stop plugin; cp /run/config.toml /etc/boathook/config.toml")?;
    Ok("seen by the plugin's uevents; then a container by CDI".to_string())
}

/// The reader, for QEMU's monitor to plug in again.
pub(super) fn reader_device() -> Value {
    json!({ "driver": "usb-ccid", "id": "reader", "bus": "usb.0", "port": "2" })
}

/// A program of the image speaks with the reader.
fn reader(vm: &mut Vm) -> Result<String> {
    let seen = vm.run(&format!(
        "{READER_CLASS}
        full -e READER_VISIBLE_DEVICES=all -- lsusb -v -d 08e6:4433 2>&1
        echo all:; full -e READER_VISIBLE_DEVICES=all -- lsusb
        echo host:; lsusb; rm {READER_CLASS_FILE}",
    ))?;
    expect(&seen, "QEMU USB CCID")?;
    // The host has root hubs at least, of the Linux Foundation.
    let (in_container, on_host) = seen.split_once("host:").context("no host's list")?;
    let (_, in_container) = in_container.split_once("all:").context("no list")?;
    expect(on_host, "1d6b:")?;
    expect(in_container, "08e6:4433")?;
    let count = in_container
        .lines()
        .filter(|line| line.contains(" ID "))
        .count();
    ensure!(
        count == 1,
        "a container lists other devices: {in_container}"
    );
    Ok("lsusb reads the reader's strings in a container, and lists no other device".to_string())
}
