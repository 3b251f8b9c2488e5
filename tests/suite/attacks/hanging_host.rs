//! A driver that hangs while containers of its class are started.

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::hanging::{self, Hanging};
use harness::rootfs::Rootfs;

use super::{STAGE, container_with_device, hook, host_with_tools};
use crate::lab::{Lab, with_lab};

/// What the hook's deadline of 10 s and SIGKILL a second later leave to the runtime.
const ENOUGH: Duration = Duration::from_secs(14);

const CLASS: &str = "version = 1\n\
    resource = 'hanging.com/npu'\n\
    request = { env = 'HANGING_VISIBLE_DEVICES' }\n\
    discover = [{ path = '/sys/class/hanging/{name}' }]\n\
    device = { id = '{name}' }\n";

#[test]
fn a_container_of_the_class_is_refused_in_time() {
    match hanging::missing() {
        Some(reason) => skip::report(module_path!(), &reason),
        None => with_lab(module_path!(), CgroupView::V2, refused_in_time),
    }
}

fn refused_in_time(lab: &Lab) {
    let host = host_with_tools();
    host.add_class("hanging", CLASS).unwrap();
    let driver = host.root().join("sys/class/hanging");
    fs::create_dir_all(&driver).unwrap();
    let hanging = Hanging::over(&driver).unwrap();
    // Of others they are started as always.
    let other = container_with_device(&host, Rootfs::Busybox).args(["/bin/true"]);
    lab.run(&other.build().unwrap());
    let bundle = Bundle::builder(Rootfs::Busybox)
        .hook(STAGE, hook(&host).timeout(60))
        .env("HANGING_VISIBLE_DEVICES", "all")
        .args(["/bin/true"])
        .build()
        .unwrap();
    let (over, is_over) = mpsc::channel::<()>();
    // So that a failure ends, too.
    let end = thread::spawn(move || {
        let _ = is_over.recv_timeout(2 * ENOUGH);
        drop(hanging);
    });
    let since = Instant::now();
    let ran = lab.runc.run(&bundle).unwrap();
    let took = since.elapsed();
    drop(over);
    end.join().unwrap();
    assert!(!ran.status.success());
    assert!(took < ENOUGH, "{took:?}: {}", ran.stderr);
    lab.assert_nothing_left(&bundle);
}
