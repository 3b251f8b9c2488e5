//! Tests of `open-devices`, which the pod of `helm test` runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::privilege::missing_for_engines;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::node::PLUGIN;

/// Runs the check on a container with the device nodes of `directory`. Its network interfaces are in
/// `interfaces` below it.
fn open_devices(directory: &Path) -> Output {
    let interfaces = directory.join("interfaces");
    fs::create_dir_all(interfaces.join("lo")).unwrap();
    let mut command = Command::new(PLUGIN);
    command.arg("open-devices").arg(directory);
    command.arg("--interfaces").arg(interfaces);
    command.output().unwrap()
}

fn make_node(path: &Path, major: u64, minor: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknod(path, SFlag::S_IFCHR, Mode::S_IRUSR, makedev(major, minor)).unwrap();
}

/// A node of a device without a driver stands for one that the container's cgroup refuses: both
/// fail when they are opened.
#[test]
fn each_node_is_opened_except_those_of_every_container() {
    if let Some(reason) = missing_for_engines() {
        return skip::report("open-devices", &reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    make_node(&path("npu0"), 1, 3);
    make_node(&path("npu/1"), 1, 5);
    make_node(&path("random"), 0, 0);
    fs::write(path("file"), "").unwrap();
    let output = open_devices(directory.path());
    let text = String::from_utf8(output.stdout).unwrap();
    let shown = directory.path().display();
    assert_eq!(text, format!("{shown}/npu/1 works\n{shown}/npu0 works\n"));
    assert!(output.status.success());

    make_node(&path("broken"), 0, 0);
    let output = open_devices(directory.path());
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    let wanted = format!("boathook-plugin: cannot open {shown}/broken: ");
    assert!(text.starts_with(&wanted), "{text}");
}

/// The hook mounts the host's node on an empty file.
#[test]
fn a_mounted_node_is_opened() {
    if let Some(reason) = missing_for_engines() {
        return skip::report("open-devices", &reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let container = directory.path().join("dev");
    let path = |name: &str| directory.path().join(name);
    make_node(&path("npu0"), 1, 3);
    fs::create_dir(&container).unwrap();
    fs::write(container.join("npu0"), "").unwrap();
    let script = "mount --bind \"$1\" \"$2\"/npu0 && exec \"$3\" open-devices \"$2\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "/bin/sh", "-c", script, "sh"]);
    command.arg(path("npu0")).arg(&container).arg(PLUGIN);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = format!("{}/npu0 works\n", container.display());
    assert_eq!(
        text,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_container_without_devices_fails() {
    let directory = tempfile::tempdir().unwrap();
    let output = open_devices(directory.path());
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains(": the pod requests no device, or its devices were not injected"),
        "{text}"
    );
}

/// A CAN bus has no node. The pod's own interface may be hardware, too, and a tunnel is in every
/// network namespace.
#[test]
fn an_interface_of_hardware_is_a_device() {
    let directory = tempfile::tempdir().unwrap();
    let interface = |path: &str| directory.path().join("interfaces").join(path);
    for path in ["lo", "tunl0", "eth0/device"] {
        fs::create_dir_all(interface(path)).unwrap();
    }
    assert_eq!(open_devices(directory.path()).status.code(), Some(1));

    fs::create_dir_all(interface("can0/device")).unwrap();
    let output = open_devices(directory.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "interface can0 is there\n");
    assert!(output.status.success());
}
