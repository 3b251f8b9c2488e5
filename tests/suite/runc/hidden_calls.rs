//! Older kernels, and seccomp profiles around the runtime: the newer calls
//! fail, and the container is the same.

use std::fs;

use harness::bundle::Bundle;
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, Loaded};
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use super::node;
use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version};

on_each_cgroup_version!(
    the_container_is_the_same_without_newer_calls,
    a_kernel_that_can_do_nothing_is_refused
);

/// The system calls that kernels lack, from the newest to the oldest supported kernel.
const CASES: [&str; 5] = [
    "mount_setattr",
    "mount_setattr openat2",
    "open_tree move_mount",
    "fsopen fsmount fsconfig",
    "mount_setattr openat2 open_tree move_mount fsopen fsmount fsconfig",
];

/// A container whose hook lacks these calls.
fn container(host: &DemoHost, errno: &str, calls: &str) -> Bundle {
    let calls: Vec<&str> = calls.split(' ').collect();
    let hook = hook(host).without_syscalls(errno, &calls).unwrap();
    let builder = Bundle::builder(Rootfs::Glibc).hook(STAGE, hook);
    builder.env(DemoHost::VARIABLE, "npu-3").build().unwrap()
}

fn the_container_is_the_same_without_newer_calls(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for errno in ["ENOSYS", "EPERM"] {
        for calls in CASES {
            let bundle = container(&host, errno, calls);
            let library = VendorLibrary::dummy_npu();
            let leftover = format!("/usr/lib/x86_64-linux-gnu/{}", library.soname());
            fs::write(bundle.in_rootfs(&leftover), "").unwrap();
            let running = lab.start(&bundle);

            let file = format!("/usr/lib/boathook/lib/{}", library.file_name());
            let asked = Questions::new().path(node(3)).path(&file).path(&leftover);
            let report = running.probe(&asked).unwrap();
            let case = format!("{errno} {calls:?}");
            let read = &report.path(node(3)).unwrap().read;
            assert_eq!(*read, Access::Granted, "{case}");
            let written = &report.path(&file).unwrap().write;
            assert_eq!(*written, Access::refused("EROFS"), "{case}");
            for (path, options) in [
                (node(3), ["ro", "nosuid", "noexec"].as_slice()),
                (file, &["ro", "nosuid", "nodev"]),
                (leftover, &["ro", "nosuid", "nodev"]),
            ] {
                let mount = report.mount_at(&path).unwrap();
                let has = options.iter().all(|option| mount.has_option(option));
                assert!(has && mount.propagation.is_empty(), "{case}: {mount:?}");
            }

            let wanted = loader::command(&[library.wanted()]);
            let loaded = loader::parse(&running.output(&wanted).unwrap()).unwrap();
            let found = matches!(&loaded[..], [Loaded::Found { .. }]);
            assert!(found, "{case}: {loaded:?}");
            drop(running);
            lab.assert_nothing_left(&bundle);
        }
    }
}

/// mount(2) has no fallback: the hook fails with one line.
fn a_kernel_that_can_do_nothing_is_refused(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let calls = "mount mount_setattr open_tree move_mount fsopen";
    let bundle = container(&host, "EPERM", calls);
    let ran = lab.runc.run(&bundle).unwrap();
    assert!(!ran.status.success());
    let log = host.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains(bundle.id()) && log.contains("EPERM"), "{log}");
    lab.assert_nothing_left(&bundle);
}
