//! Older kernels, and seccomp profiles around the runtime: the newer calls
//! fail, and the container is the same.

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, Loaded};
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use super::node;
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    the_container_is_the_same_without_newer_calls,
    a_kernel_that_can_do_nothing_is_refused
);

/// What kernels lack, from the newest to the oldest that is supported.
const CASES: [&[&str]; 5] = [
    &["mount_setattr"],
    &["mount_setattr", "openat2"],
    &["open_tree", "move_mount"],
    &["fsopen", "fsmount", "fsconfig"],
    &[
        "mount_setattr",
        "openat2",
        "open_tree",
        "move_mount",
        "fsopen",
        "fsmount",
        "fsconfig",
    ],
];

fn the_container_is_the_same_without_newer_calls(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let stage = Stage::CreateRuntime;
    let hook = HookCommand::boathook(stage, &host.config_file()).unwrap();
    for errno in ["ENOSYS", "EPERM"] {
        for calls in CASES {
            let hook = hook.clone().without_syscalls(errno, calls).unwrap();
            let bundle = Bundle::builder(Rootfs::Glibc)
                .hook(stage, hook)
                .env(DemoHost::VARIABLE, "npu-3")
                .build()
                .unwrap();
            let running = lab.runc.create(&bundle).unwrap();
            running.start().unwrap();

            let file = format!(
                "/usr/lib/boathook/lib/{}",
                VendorLibrary::dummy_npu().file_name()
            );
            let asked = Questions::new().path(node(3)).path(&file);
            let report = running.probe(&asked).unwrap();
            let case = format!("{errno} {calls:?}");
            assert_eq!(
                report.path(node(3)).unwrap().read,
                Access::Granted,
                "{case}"
            );
            assert_eq!(
                report.path(&file).unwrap().write,
                Access::refused("EROFS"),
                "{case}"
            );
            for (path, options) in [
                (node(3), ["ro", "nosuid", "noexec"].as_slice()),
                (file, &["ro", "nosuid", "nodev"]),
            ] {
                let mount = report.mount_at(&path).unwrap();
                assert!(
                    options.iter().all(|option| mount.has(option)),
                    "{case}: {mount:?}"
                );
                assert!(mount.propagation.is_empty(), "{case}: {mount:?}");
            }

            let wanted = loader::command(&[VendorLibrary::dummy_npu().wanted()]);
            let printed = running.exec(&wanted).unwrap().success().unwrap().stdout;
            let loaded = loader::parse(&printed).unwrap();
            assert!(
                matches!(&loaded[..], [Loaded::Found { .. }]),
                "{case}: {loaded:?}"
            );
            drop(running);
            lab.assert_nothing_left(&bundle);
        }
    }
}

/// mount(2) has no fallback: the hook fails with one line.
fn a_kernel_that_can_do_nothing_is_refused(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let stage = Stage::CreateRuntime;
    let hook = HookCommand::boathook(stage, &host.config_file()).unwrap();
    let calls = [
        "mount",
        "mount_setattr",
        "open_tree",
        "move_mount",
        "fsopen",
    ];
    let bundle = Bundle::builder(Rootfs::Glibc)
        .hook(stage, hook.without_syscalls("EPERM", &calls).unwrap())
        .env(DemoHost::VARIABLE, "npu-3")
        .build()
        .unwrap();
    let ran = lab.runc.run(&bundle).unwrap();
    assert!(!ran.status.success());
    let log = host.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains(bundle.id()) && log.contains("EPERM"), "{log}");
    lab.assert_nothing_left(&bundle);
}
