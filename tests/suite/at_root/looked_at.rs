//! The files that a class names are looked at and not opened, and links stay links.
//!
//! musl's O_ACCMODE contains O_PATH, and Rust's standard library removes it from the flags
//! that a program adds: a program for musl then opened what it meant to look at. It waited
//! for a writer of a pipe, took what it could not open for absent, and followed links.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

use harness::alias_device::AliasDevice;
use harness::captured::Captured;
use harness::privilege::missing_for_root;
use harness::{binaries, count};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::ThisHost;

/// Devices by the links of the kernel's class `mem`.
const MEM: &str = r#"
    version = 1
    resource = "example.com/mem"
    request = { env = "MEM" }
    [[discover]]
    path = "/sys/class/mem/{name}"
    symlink = "required"
    attributes = [{ name = "bus", link = "subsystem" }]
    [device]
    id = "{bus}-{name}"
"#;

/// Everything in the test's own directory is a device.
const OWN: &str = r#"
    version = 1
    resource = "example.com/own"
    request = { env = "OWN_DEVICES" }
    discover = [{ path = "@own@/{name}" }]
    device = { id = "{name}", nodes = ["@own@/{name}"] }
"#;

/// The kernel's memory devices, as their ids are in [`MEM`].
fn memory() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/mem").unwrap();
    let id = |entry: fs::DirEntry| format!("mem-{}", entry.file_name().display());
    let mut ids: Vec<_> = entries.map(|entry| id(entry.unwrap())).collect();
    ids.sort();
    ids
}

#[test]
fn links_of_sysfs_are_read_and_recorded() {
    if let Some(reason) = missing_for_root() {
        return skip::report("links_of_sysfs_are_read_and_recorded", &reason);
    }
    let host = ThisHost::new().class("mem", MEM);
    assert_eq!(host.ids(), memory());
    let refused = MEM.replace("required", "refused");
    assert!(ThisHost::new().class("mem", &refused).ids().is_empty());
    let recording = host.own_path("recording");
    host.boathook(&["class", "record", recording.to_str().unwrap()]);
    let text = fs::read_to_string(recording.join("host.txt")).unwrap();
    let links = text.lines().filter(|line| line.starts_with("link /sys/"));
    assert_eq!(links.count(), 2 * memory().len(), "{text}");
}

#[test]
fn what_cannot_be_opened_is_there() {
    if let Some(reason) = missing_for_root() {
        return skip::report("what_cannot_be_opened_is_there", &reason);
    }
    let host = ThisHost::new().class("own", OWN);
    mkfifo(&host.own_path("pipe"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(host.own_path("socket")).unwrap();
    driverless()
        .make_node(&host.own_path("driverless"))
        .unwrap();
    let devices = host.devices();
    assert_eq!(devices.len(), 3, "{devices:?}");
    for device in devices {
        if device["id"] == "driverless" {
            assert_eq!(device["healthy"], true, "{device}");
        } else {
            let reason = device["reason"].as_str().unwrap();
            assert!(reason.contains("not a device node"), "{reason}");
        }
    }
}

#[test]
fn no_node_is_opened() {
    let missing = missing_for_root().or_else(count::missing);
    if let Some(reason) = missing {
        return skip::report("no_node_is_opened", &reason);
    }
    let host = ThisHost::new().class("own", OWN);
    AliasDevice::pair()
        .unwrap()
        .0
        .make_node(&host.own_path("node"))
        .unwrap();
    for command in ["list", "check"] {
        let of_node = calls_on(&host, command, "node");
        assert!(!of_node.is_empty(), "{command}");
        let mut opens = of_node.iter().filter(|line| line.contains("open"));
        assert_eq!(
            opens.find(|line| !line.contains("O_PATH")),
            None,
            "{command}"
        );
    }
}

/// A driver may need time to write it.
#[test]
fn a_file_of_several_attributes_is_read_once() {
    let missing = missing_for_root().or_else(count::missing);
    if let Some(reason) = missing {
        return skip::report("a_file_of_several_attributes_is_read_once", &reason);
    }
    let one = r#"{ name = "one", file = "information", key = "One" },"#;
    let two = r#"{ name = "two", file = "information", key = "Two" },"#;
    let reads = |attributes: &str| {
        let attributes = format!("{{name}}\", attributes = [{attributes}] }}]");
        let host = ThisHost::new().class("own", &OWN.replace("{name}\" }]", &attributes));
        fs::create_dir(host.own_path("npu")).unwrap();
        fs::write(host.own_path("npu/information"), "One: 1\nTwo: 2\n").unwrap();
        calls_on(&host, "list", "information").len()
    };
    assert_ne!(reads(one), 0);
    assert_eq!(reads(&[one, two].concat()), reads(one));
}

/// The calls of `boathook COMMAND` on files with this name.
fn calls_on(host: &ThisHost, command: &str, name: &str) -> Vec<String> {
    let trace = host.own_path("trace");
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=%file", "-o"]).arg(&trace);
    traced.arg(binaries::program("boathook").unwrap());
    traced.arg("--config").arg(host.config_file()).arg(command);
    Captured::run(&mut traced).unwrap();
    let text = fs::read_to_string(&trace).unwrap();
    fs::remove_file(trace).unwrap();
    let ends = [format!("/{name}\""), format!(", \"{name}\"")];
    let lines = text
        .lines()
        .filter(|line| ends.iter().any(|end| line.contains(end)));
    lines.map(str::to_owned).collect()
}

/// The number of a device that no driver of this kernel has.
fn driverless() -> AliasDevice {
    let drivers = fs::read_to_string("/proc/devices").unwrap();
    let is_free = |major: &u64| {
        let mut used = drivers
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        !used.any(|number| number == major.to_string())
    };
    // Reserved for local use (the kernel's Documentation/admin-guide/devices.txt).
    let major = (240..=254).find(is_free).unwrap();
    AliasDevice { major, minor: 0 }
}
