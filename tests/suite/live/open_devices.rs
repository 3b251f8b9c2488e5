//! `detach` names the processes that can still use a device that they opened before.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use harness::bundle::Bundle;
use harness::compile::{self, Libc};
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::{boathook, done};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::said::assert_says;

on_each_cgroup_version!(
    a_program_that_has_it_open_is_named,
    a_thread_that_has_it_open_is_named,
    a_program_that_has_its_memory_mapped_is_named,
);

fn a_program_that_has_it_open_is_named(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let wait = "while [ ! -e /dev/dummy-npu3 ]; do sleep 0.1; done; \
                exec sleep 1000 3</dev/dummy-npu3";
    let bundle = Bundle::builder(Rootfs::Busybox);
    let bundle = bundle.args(["/bin/sh", "-c", wait]).build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    let opened = format!("/proc/{}/fd/3", running.pid().unwrap());
    assert!(wait_until(|| fs::metadata(&opened).is_ok()));
    let detached = boathook(lab, &host, &["detach", bundle.id()]);
    let expected = format!("process {} (", running.pid().unwrap());
    assert_says(&detached.stderr, &[&expected, "open, and can use it"]);
    detached.success().unwrap();
}

/// Starts a container whose program keeps the node in this way once it is there, attaches the
/// device, and returns what `detach` says.
fn detach_kept(lab: &Lab, host: &DemoHost, device: &str, node: &str, way: &str) -> String {
    let program = compile::program("open-device.c", Libc::Glibc, &["-static", "-pthread"]);
    let bundle = Bundle::builder(Rootfs::Busybox).bind(&program.unwrap(), "/usr/bin/open-device");
    let bundle = bundle.args(["/usr/bin/open-device", node, way]);
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    done(lab, host, &["attach", bundle.id(), device]);
    let pid = running.pid().unwrap();
    assert!(wait_until(|| keeps(pid, node)), "{way}");
    let detached = boathook(lab, host, &["detach", bundle.id()]);
    let detached = detached.success().unwrap();
    detached.stderr.replace(&pid.to_string(), "PID")
}

/// Whether a thread of a process other than the first one has the node open, or its memory is mapped
/// and no descriptor is open.
fn keeps(pid: i32, node: &str) -> bool {
    let leads_to_node = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| link == Path::new(node))
    };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let first = process.join("task").join(pid.to_string());
    let threads = fs::read_dir(process.join("task")).unwrap();
    let mut others = threads.map(|thread| thread.unwrap().path());
    let is_open_in_other =
        others.any(|thread| thread != first && leads_to_node(&thread.join("fd")));
    let is_mapped = leads_to_node(&process.join("map_files"));
    (is_open_in_other || is_mapped) && !leads_to_node(&process.join("fd"))
}

fn a_thread_that_has_it_open_is_named(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let detached = detach_kept(lab, &host, "dummy-npu=3", "/dev/dummy-npu3", "thread");
    let expected = [
        "thread ",
        " of process PID (open-device) has device c 10:",
        "open, and can use it",
    ];
    assert_says(&detached, &expected);
}

fn a_program_that_has_its_memory_mapped_is_named(lab: &Lab) {
    // The memory of a block device can be mapped, also that of a loop device without a file.
    let host = DemoHost::new().unwrap();
    let node = host.root().join("dev/disk-0");
    mknod(&node, SFlag::S_IFBLK, Mode::empty(), makedev(7, 0)).unwrap();
    fs::set_permissions(&node, Permissions::from_mode(0o666)).unwrap();
    let class = "version = 1\nresource = 'example.com/disk'\nrequest = { env = 'DISKS' }\n\
        discover = [{ count = 1 }]\n[device]\nid = 'disk-{index}'\nindex = '{index}'\n\
        nodes = [{ path = '/dev/disk-{index}' }]\n";
    host.add_class("disk", class).unwrap();
    let detached = detach_kept(lab, &host, "disk=0", "/dev/disk-0", "mapped");
    let expected = "process PID (open-device) has memory of device b 7:0 mapped, and can use it";
    assert_says(&detached, &[expected]);
}
