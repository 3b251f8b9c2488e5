//! Tests of `open-devices`, which the pod of `helm test` runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::privilege::missing_for_engines;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::node::PLUGIN;

fn open_devices(directory: &Path) -> Output {
    let mut command = Command::new(PLUGIN);
    command.arg("open-devices").arg(directory).output().unwrap()
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

#[test]
fn a_container_without_devices_fails() {
    let directory = tempfile::tempdir().unwrap();
    let output = open_devices(directory.path());
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("has no device: the pod requests none, or its devices"),
        "{text}"
    );
}
