//! `boathook doctor` for running containers: the plan is compared with
//! the container.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::{container, node, with_node_of_engine};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    a_container_that_runs_is_compared_with_its_plan,
    devices_of_an_engine_are_recognised
);

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
        let bundle = bundle.build().unwrap();
        let running = lab.start(&bundle);
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

/// A CDI specification without a hook, or `--device`: no variable, and no hook of
/// Boathook.
fn devices_of_an_engine_are_recognised(lab: &Lab) {
    const CHIP: &str = "version = 1\nresource = 'example.com/chip'\nrequest = { env = 'CHIPS' }\n\
        discover = [{ path = '/dev/dummy-npu{index:number}' }]\n\
        device = { id = 'chip-{index}', nodes = ['/dev/dummy-npu{index}'] }\n\
        edits = [{ nodes = ['/dev/dummy-npu5'] }]\n";
    let host = DemoHost::new().unwrap();
    let plain = || Bundle::builder(Rootfs::Busybox);
    let given = || with_node_of_engine(plain(), &host, 3);
    let words = [
        "npu-3 of dummy-npu, by nodes in config.json",
        "every node is in the container",
        "every device is allowed",
    ];
    let cases: [(&str, BundleBuilder, i32, &[&str]); 4] = [
        ("a device", given(), 0, &words),
        ("none", plain(), 11, &["no variable of any class"]),
        (
            "another user's",
            given().user(1000, 1000),
            19,
            &["uid 1000 may not open /dev/dummy-npu3"],
        ),
        (
            "a misspelled variable",
            given().env("DUMMY_VISIBLE_DEVICE", "4"),
            0,
            &["did you mean DUMMY_VISIBLE_DEVICES", words[0]],
        ),
    ];
    for (case, bundle, code, words) in cases {
        examine(lab, &host, case, bundle, code, words);
    }
    host.add_class("chip", CHIP).unwrap();
    let lacks = "config.json lacks /dev/dummy-npu5, which chip needs";
    let both = "npu-3 of dummy-npu";
    let words = ["chip-3 of chip", both, lacks];
    examine(lab, &host, "a control node", given(), 0, &words);
}

fn examine(
    lab: &Lab,
    host: &DemoHost,
    case: &str,
    bundle: BundleBuilder,
    code: i32,
    words: &[&str],
) {
    let bundle = bundle.build().unwrap();
    let _running = lab.start(&bundle);
    let ran = doctor(lab, host, &["--container", bundle.id()]);
    assert_eq!(ran.status.code(), Some(code), "{case}: {ran:?}");
    for word in words {
        assert!(ran.stdout.contains(word), "{case}: {}", ran.stdout);
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
