//! `boathook doctor` for containers that run: what the plan has is compared with
//! what they have.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::probe::{PATH, PAUSE};
use harness::rootfs::Rootfs;

use super::{container, node};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(a_container_that_runs_is_compared_with_its_plan);

fn a_container_that_runs_is_compared_with_its_plan(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    fs::set_permissions(host.node(4), Permissions::from_mode(0o600)).unwrap();
    let idle = tempfile::tempdir().unwrap();
    let program = idle.path().join("boathook");
    symlink("/bin/true", &program).unwrap();
    let with_idle_hook = || {
        Bundle::builder(Rootfs::Busybox)
            .hook(Stage::CreateRuntime, HookCommand::new(&program))
            .env(DemoHost::VARIABLE, "npu-3")
    };
    let cases: [(&str, BundleBuilder, i32, &str); 5] = [
        (
            "as it should be",
            container(&host, Rootfs::Busybox, "npu-3"),
            0,
            "every device is allowed",
        ),
        (
            "no hook in config.json",
            Bundle::builder(Rootfs::Busybox).env(DemoHost::VARIABLE, "npu-3"),
            13,
            "no boathook hook",
        ),
        (
            "a hook that does nothing",
            with_idle_hook(),
            17,
            "not in the container: /dev/dummy-npu3",
        ),
        (
            "a node without a device rule",
            with_idle_hook()
                .bind(&host.node(3), &node(3))
                .bind(&host.libraries(), "/usr/lib/boathook/lib"),
            18,
            "denied: c ",
        ),
        (
            "a user without a right to the node",
            container(&host, Rootfs::Busybox, "npu-4").user(1000, 1000),
            19,
            "uid 1000 may not open /dev/dummy-npu4",
        ),
    ];
    for (case, bundle, code, word) in cases {
        let bundle = bundle.args([PATH, PAUSE]).build().unwrap();
        let running = lab.runc.create(&bundle).unwrap();
        running.start().unwrap();
        let pid = running.pid().unwrap().to_string();
        let directory = bundle.directory().to_str().unwrap();
        let by_id = doctor(lab, &host, &["--container", bundle.id()]);
        let by_pid = doctor(lab, &host, &["--pid", &pid, "--bundle", directory]);
        for ran in [&by_id, &by_pid] {
            assert_eq!(ran.status.code(), Some(code), "{case}: {ran:?}");
            assert!(ran.stdout.contains(word), "{case}: {}", ran.stdout);
        }
        assert!(by_id.stdout.contains(&format!("pid {pid}")), "{case}");
        assert!(by_id.stdout.contains(directory), "{case}");
    }
}

fn doctor(lab: &Lab, host: &DemoHost, whose: &[&str]) -> Captured {
    let program: &Path = &binaries::program("boathook").unwrap();
    let mut command = lab.runc.view().command(program).unwrap();
    command
        .arg("--config")
        .arg(host.config_file())
        .arg("doctor")
        .args(whose)
        .arg("--root")
        .arg(lab.runc.state_directory());
    Captured::run(&mut command).unwrap()
}
