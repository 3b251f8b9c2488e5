//! The devices that a program in a container's cgroup can open, whatever the container's own view is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::runc::{Container, Runc};

use crate::lab::Lab;
use crate::live::follow::with_device;

/// The directory of a container's device cgroup.
pub(super) fn cgroup(lab: &Lab, container: &Container<'_>) -> PathBuf {
    let own = fs::read_to_string(format!("/proc/{}/cgroup", container.pid().unwrap())).unwrap();
    let (hierarchy, mounts): (_, &[&str]) = match lab.runc.view() {
        CgroupView::V1 => (":devices:", &["/sys/fs/cgroup/devices"]),
        CgroupView::V2 => ("0::", &["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]),
    };
    let mut lines = own.lines();
    let path = lines.find_map(|line| Some(line.split_once(hierarchy)?.1));
    let path = path.expect("a device cgroup").trim_start_matches('/');
    let mut directories = mounts.iter().map(|mount| Path::new(mount).join(path));
    directories
        .find(|directory| directory.join("cgroup.procs").exists())
        .expect("the cgroup's directory")
}

/// Whether a program in the cgroup can open a device, by a node of the host's.
pub(super) fn opens(cgroup: &Path, host: &DemoHost, index: usize) -> bool {
    open_in(cgroup, host, index, "<").status.success()
}

/// Whether the rules of a cgroup let a program open a device to write. The driver may refuse it.
pub(super) fn opens_to_write(cgroup: &Path, host: &DemoHost, index: usize) -> bool {
    let opened = open_in(cgroup, host, index, ">>");
    opened.status.success() || !String::from_utf8_lossy(&opened.stderr).contains("not permitted")
}

fn open_in(cgroup: &Path, host: &DemoHost, index: usize, redirection: &str) -> Output {
    let node = host.path().join(format!("for-cgroup-{index}"));
    if !node.exists() {
        host.device(index).make_node(&node).unwrap();
    }
    let script = format!("echo $$ > \"$1\"/cgroup.procs && exec 3{redirection} \"$2\"");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script, "sh"]).arg(cgroup).arg(&node);
    command.output().unwrap()
}

/// Starts a container that has the id of another and a device, in a cgroup of its own. Its
/// bundle has to exist as long as the container.
pub(super) fn start_with_same_id(
    lab: &Lab,
    host: &DemoHost,
    id: &str,
    device: &str,
) -> (Runc, Bundle) {
    let runc = Runc::new(lab.runc.view()).unwrap();
    let bundle = with_device(host, device).args(["/bin/sleep", "1000"]);
    let bundle = bundle.cgroups_path(format!("/{id}-second"));
    let bundle = bundle.build().unwrap();
    let mut run = runc.command("run").unwrap();
    run.args(["--detach", "--bundle"]);
    run.arg(bundle.directory()).arg(id);
    run.stdin(Stdio::null());
    run.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(run.status().unwrap().success());
    (runc, bundle)
}
