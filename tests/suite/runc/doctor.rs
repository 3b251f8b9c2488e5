//! `boathook doctor` for running containers: the plan is compared with
//! the container.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::demo_host::DemoHost;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use serde_json::Value;

use super::image_names::{CARD_CLASS, CARD_HOST};
use super::{container, node, with_node_of_engine};
use crate::lab::{Lab, STAGE, on_each_cgroup_version, requesting};
use crate::live::boathook;
use crate::said::assert_says;

on_each_cgroup_version!(
    a_container_that_runs_is_compared_with_its_plan,
    files_are_looked_for_where_the_containers_own_root_has_them,
    devices_of_an_engine_are_recognised
);

fn a_container_that_runs_is_compared_with_its_plan(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    fs::set_permissions(host.node(4), Permissions::from_mode(0o600)).unwrap();
    let idle = tempfile::tempdir().unwrap();
    let program = idle.path().join("boathook-hook");
    symlink("/bin/true", &program).unwrap();
    let with_idle_hook = || {
        Bundle::builder(Rootfs::Busybox)
            .hook(STAGE, HookCommand::new(&program))
            .env(DemoHost::VARIABLE, "npu-3")
    };
    let busybox = |devices| container(&host, Rootfs::Busybox, devices);
    let without = Bundle::builder(Rootfs::Busybox).env(DemoHost::VARIABLE, "npu-3");
    let without_rule = with_idle_hook()
        .bind(&host.node(3), &node(3))
        .bind(&host.libraries(), "/usr/lib/boathook/lib");
    let not_there = "not in the container: /dev/dummy-npu3";
    let may_not = "uid 1000 may not open /dev/dummy-npu4";
    // With CDI the engine makes the node, which the plan then does not have.
    let by_engine = with_node_of_engine(busybox("npu-4"), &host, 4).user(1000, 1000);
    // The root of a user namespace owns no node of the host.
    let with_users = busybox("npu-4").user_namespace();
    let node_of_the_host = "give the host's node the mode 0666 by a udev rule";
    // The hook places the device over the node that `--device` left with an earlier number.
    let over_stale_node = busybox("npu-3").char_device(node(3), (188, 9), "rwm");
    for (case, bundle, code, word) in [
        (
            "a stale node below that of the hook",
            over_stale_node,
            0,
            "every device is allowed",
        ),
        (
            "all is well",
            busybox("npu-3"),
            0,
            "every device is allowed",
        ),
        ("no hook in config.json", without, 13, "no boathook hook"),
        ("an idle hook", with_idle_hook(), 17, not_there),
        ("no device rule", without_rule, 18, "denied: c "),
        ("no right", busybox("npu-4").user(1000, 1000), 19, may_not),
        ("no right to a node of the engine", by_engine, 19, may_not),
        (
            "the root of a user namespace",
            with_users,
            19,
            node_of_the_host,
        ),
    ] {
        let bundle = bundle.build().unwrap();
        let running = lab.start(&bundle);
        let pid = running.pid().unwrap().to_string();
        let directory = bundle.directory().to_str().unwrap();
        let doctor = |whose: &[&str]| {
            let ran = boathook(lab, &host, &[&["doctor"], whose].concat());
            assert_eq!(ran.status.code(), Some(code), "{case}: {ran:?}");
            assert!(ran.stdout.contains(word), "{case}: {}", ran.stdout);
            ran.stdout
        };
        doctor(&["--pid", &pid, "--bundle", directory]);
        doctor(&["--container", bundle.id()]);
        let by_id = doctor(&[bundle.id()]);
        assert_says(&by_id, &[&format!("pid {pid}"), directory]);
        // Findings that follow from the first cause are left out.
        let errors = by_id.lines().filter(|line| line.starts_with("error "));
        assert_eq!(errors.count(), usize::from(code != 0), "{by_id}");
        // The fix is one that works.
        if case == "an idle hook" || case == "no device rule" {
            let id = bundle.id();
            let fix = format!("`boathook attach {id} dummy-npu=npu-3` gives them back now");
            assert_says(&by_id, &[&fix]);
            // A class that is followed brings its devices back by itself.
            let by_service =
                "`systemctl enable --now boathook-follow.service` lets a device return";
            assert!(!by_id.contains(by_service), "{by_id}");
            if case == "an idle hook" {
                host.write_config("[class.dummy-npu]\nfollow = true\n")
                    .unwrap();
                assert_says(&doctor(&[id]), &[by_service]);
                host.write_config("").unwrap();
            }
            let attached = boathook(lab, &host, &["attach", bundle.id(), "dummy-npu=npu-3"]);
            assert_eq!(attached.status.code(), Some(0), "{attached:?}");
            let after = boathook(lab, &host, &["doctor", bundle.id()]);
            assert_eq!(after.status.code(), Some(0), "{case}: {after:?}");
        }
    }
}

/// The mount of a rootless engine's image is not in the host's namespace: the host sees an empty
/// directory, from which no path of the image follows.
fn files_are_looked_for_where_the_containers_own_root_has_them(lab: &Lab) {
    let host = RecordedHost::bare(CARD_HOST).unwrap();
    host.add_class("cards", CARD_CLASS).unwrap();
    let bundle = requesting(&host, Rootfs::Busybox, "CARDS", "all");
    let bundle = bundle.build().unwrap();
    fs::create_dir(bundle.in_rootfs("/usr/lib64")).unwrap();
    fs::write(bundle.in_rootfs("/usr/lib64/libc.so.6"), "").unwrap();
    let running = lab.start(&bundle);
    let pid = running.pid().unwrap().to_string();
    let directory = bundle.directory().to_str().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let config_json = fs::read_to_string(bundle.config_file()).unwrap();
    let mut config: Value = serde_json::from_str(&config_json).unwrap();
    for root in [&*bundle.rootfs(), empty.path()] {
        config["root"]["path"] = root.to_str().unwrap().into();
        fs::write(bundle.config_file(), config.to_string()).unwrap();
        let arguments = ["doctor", "--pid", &pid, "--bundle", directory];
        let ran = boathook(lab, &host, &arguments);
        assert_eq!(ran.status.code(), Some(0), "{root:?}: {ran:?}");
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
    let examine = |bundle: BundleBuilder, code, words: &[&str]| {
        let bundle = bundle.build().unwrap();
        let _running = lab.start(&bundle);
        let ran = boathook(lab, &host, &["doctor", "--container", bundle.id()]);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert_says(&ran.stdout, words);
    };
    let may_not = "uid 1000 may not open /dev/dummy-npu3";
    let misspelled = given().env("DUMMY_VISIBLE_DEVICE", "4");
    let did_you_mean = "did you mean DUMMY_VISIBLE_DEVICES";
    examine(given(), 0, &words);
    // `--device A:B`.
    let (major, minor) = host.device(3).number();
    let sysfs_dir = host.root().join(format!("sys/dev/char/{major}:{minor}"));
    fs::create_dir_all(sysfs_dir).unwrap();
    let moved = plain().char_device("/dev/moved", (major, minor), "rwm");
    let moved_words = ["npu-3 of dummy-npu", words[1], words[2]];
    examine(moved, 0, &moved_words);
    examine(plain(), 11, &["no variable of any class"]);
    examine(given().user(1000, 1000), 19, &[may_not]);
    examine(misspelled, 0, &[did_you_mean, words[0]]);
    // One with a control node.
    host.add_class("chip", CHIP).unwrap();
    let lacks = "config.json lacks /dev/dummy-npu5, which chip needs";
    let both = ["chip-3 of chip", "npu-3 of dummy-npu", lacks];
    examine(given(), 0, &both);
}
