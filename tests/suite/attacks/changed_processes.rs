//! Containers that change what a tool sees of them, so that a device cannot be taken away. The
//! container's device rule is gone in each case: a program in its cgroup cannot open the device.

use std::fs;
use std::path::PathBuf;

use harness::bundle::{Bundle, BundleBuilder};
use harness::cgroup_parent::CgroupParent;
use harness::cri::Pod;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::cgroup_access::{cgroup, opens, start_with_same_id};
use super::forged_pods::{containerd, in_pod};
use super::process_changes::{EndProcesses, PROCESS_CHANGES, root_of_last_thread};
use crate::lab::{Lab, STAGE, granting, on_each_cgroup_version, requesting};
use crate::live::follow::{Follower, replug, tell};
use crate::live::{boathook, done, plain, records};

on_each_cgroup_version!(
    a_detached_device_is_gone_whatever_the_first_process_does,
    an_unplugged_device_is_gone_whatever_the_first_process_does,
    a_device_is_gone_though_the_path_of_another_is_no_directory,
    a_device_is_gone_though_the_bundle_is_gone,
    a_device_is_gone_though_the_class_file_has_a_mistake,
    a_device_is_gone_though_the_kubelets_record_is_damaged,
    a_damaged_record_is_reported,
);

/// The exit code of `detach` for a node that it cannot remove.
const NODE_STAYS: i32 = 8;

fn a_detached_device_is_gone_whatever_the_first_process_does(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for change in PROCESS_CHANGES {
        let case = change.arguments;
        let bundle = change.bundle(plain(Rootfs::Busybox));
        let running = lab.start(&bundle);
        let cgroup = cgroup(lab, &running);
        let end = EndProcesses {
            cgroup: cgroup.clone(),
        };
        let id = bundle.id();
        done(lab, &host, &["attach", id, "dummy-npu=3"]);
        assert!(opens(&cgroup, &host, 3), "{case:?}");
        change.make(&bundle, running.pid().unwrap());
        let used = done(lab, &host, &["list", "--used", "dummy-npu"]);
        assert!(used.contains("(attached)"), "{case:?}: {used}");
        // A container that starts meanwhile removes no record of one that runs.
        start_a_followed_container(lab, &host);
        assert!(records(&host).iter().any(|it| it == id), "{case:?}");
        let ran = boathook(lab, &host, &["detach", id]);
        let expected = if change.enterable { 0 } else { NODE_STAYS };
        assert_eq!(ran.status.code(), Some(expected), "{case:?}: {ran:?}");
        assert!(
            ran.stdout.contains("npu-3 of dummy-npu: detached"),
            "{case:?}: {ran:?}"
        );
        assert!(ran.stderr.contains("only a restart"), "{case:?}: {ran:?}");
        assert!(
            change.enterable || ran.stderr.contains("the nodes stay"),
            "{case:?}: {ran:?}"
        );
        assert!(!opens(&cgroup, &host, 3), "{case:?}: the rule is left");
        if change.enterable {
            let devices = root_of_last_thread(&cgroup).join("dev");
            assert!(devices.join("null").exists(), "{case:?}: {devices:?}");
            assert!(!devices.join("dummy-npu3").exists(), "{case:?}");
        }
        let used = done(lab, &host, &["list", "--used", "dummy-npu"]);
        assert!(!used.contains("(attached)"), "{case:?}: {used}");
        // Nothing is given back.
        let _follower = Follower::start(lab, &host);
        assert!(!opens(&cgroup, &host, 3), "{case:?}");
        assert_eq!(
            records(&host).iter().any(|it| it == id),
            !change.enterable,
            "{case:?}"
        );
        let id = id.to_owned();
        drop(end);
        drop(running);
        // The record of one that has ended goes with the next start.
        start_a_followed_container(lab, &host);
        assert!(!records(&host).contains(&id), "{case:?}");
    }
}

/// Starts and ends a container with a device that is followed. Its start removes the records of
/// containers that have ended.
fn start_a_followed_container(lab: &Lab, host: &DemoHost) {
    host.write_config("[class.dummy-npu]\nfollow = true\n")
        .unwrap();
    let bundle = requesting(host, Rootfs::Busybox, DemoHost::VARIABLE, "npu-2");
    let bundle = bundle.build().unwrap();
    drop(lab.start(&bundle));
    host.write_config("").unwrap();
}

/// Two devices of one container are followed; one of them is unplugged after the change.
fn assert_unplugged_is_gone(
    lab: &Lab,
    host: &DemoHost,
    bundle: &Bundle,
    case: &str,
    change: impl FnOnce(&Container<'_>),
) {
    let running = lab.start(bundle);
    let cgroup = cgroup(lab, &running);
    let _end = EndProcesses {
        cgroup: cgroup.clone(),
    };
    for index in [3, DemoHost::UNLIKE] {
        assert!(opens(&cgroup, host, index), "{case}: {index}");
    }
    change(&running);
    let follower = Follower::start(lab, host);
    replug(host, 3, None);
    assert!(
        wait_until(|| !opens(&cgroup, host, 3)),
        "{case}: the rule is left: {}",
        follower.said()
    );
    assert!(
        opens(&cgroup, host, DemoHost::UNLIKE),
        "{case}: the other device's rule is gone"
    );
    // The other device comes back with another number, and its own is another device's.
    replug(host, DemoHost::UNLIKE, Some(3));
    assert!(
        wait_until(|| !opens(&cgroup, host, DemoHost::UNLIKE)),
        "{case}: the rule for the earlier number is left: {}",
        follower.said()
    );
}

const CLASS: &str = "version = 1\nresource = 'example.com/chip'\nfollow = true\n\
    request = { env = 'CHIPS' }\ndiscover = [{ count = 8 }]\n\
    [device]\nid = 'chip-{index}'\nindex = '{index}'\n\
    nodes = [{ path = '/dev/dummy-npu{index}', container_path = '/dev/chips/{index}', \
    optional = true }]\n";

fn chips() -> DemoHost {
    let host = DemoHost::new().unwrap();
    host.add_class("chips", CLASS).unwrap();
    host
}

/// A container that the hook gives two devices that are followed.
fn two_chips(host: &DemoHost) -> BundleBuilder {
    let value = format!("3,{}", DemoHost::UNLIKE);
    requesting(host, Rootfs::Busybox, "CHIPS", &value).args(["/bin/sleep", "1000"])
}

/// The same as [`two_chips`] by CDI: the runtime makes the nodes and sets the rules.
fn two_chips_by_cdi(host: &DemoHost) -> BundleBuilder {
    let mut container = plain(Rootfs::Busybox).args(["/bin/sleep", "1000"]);
    for index in [3, DemoHost::UNLIKE] {
        let hook = granting(host, &format!("chips=chip-{index}"));
        let number = host.device(index).number();
        container = container.hook(STAGE, hook);
        container = container.char_device(format!("/dev/chips/{index}"), number, "rw");
    }
    container
}

fn an_unplugged_device_is_gone_whatever_the_first_process_does(lab: &Lab) {
    for change in PROCESS_CHANGES {
        for given in [two_chips, two_chips_by_cdi] {
            let host = chips();
            let bundle = change.bundle(given(&host));
            assert_unplugged_is_gone(lab, &host, &bundle, change.arguments[0], |running| {
                change.make(&bundle, running.pid().unwrap());
            });
        }
    }
}

fn a_device_is_gone_though_the_path_of_another_is_no_directory(lab: &Lab) {
    for put in ["echo > chips", "ln -s chips chips", "ln -s /nothing chips"] {
        let host = chips();
        let bundle = two_chips(&host).sys_admin().build().unwrap();
        assert_unplugged_is_gone(lab, &host, &bundle, put, |running| {
            let script = format!("cd /dev; umount chips/*; rm -r chips; {put}");
            running.output(&["/bin/sh", "-c", &script]).unwrap();
        });
    }
}

fn a_device_is_gone_though_the_bundle_is_gone(lab: &Lab) {
    // Either the file or the whole directory is elsewhere.
    type Paths = fn(&Bundle) -> PathBuf;
    let paths: [Paths; 2] = [Bundle::config_file, |bundle| bundle.directory().to_owned()];
    for path in paths {
        let host = chips();
        let bundle = two_chips(&host).build().unwrap();
        let path_of_bundle = path(&bundle);
        let elsewhere = path_of_bundle.with_extension("elsewhere");
        assert_unplugged_is_gone(lab, &host, &bundle, "bundle", |_| {
            fs::rename(&path_of_bundle, &elsewhere).unwrap();
        });
        fs::rename(&elsewhere, &path_of_bundle).unwrap();

        let host = DemoHost::new().unwrap();
        let bundle = plain(Rootfs::Busybox).build().unwrap();
        let path_of_bundle = path(&bundle);
        let elsewhere = path_of_bundle.with_extension("elsewhere");
        let running = lab.start(&bundle);
        let cgroup = cgroup(lab, &running);
        done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
        fs::rename(&path_of_bundle, &elsewhere).unwrap();
        let ran = boathook(lab, &host, &["detach", bundle.id()]);
        assert_eq!(ran.status.code(), Some(NODE_STAYS), "{ran:?}");
        assert!(!opens(&cgroup, &host, 3), "the rule is left");
        fs::rename(&elsewhere, &path_of_bundle).unwrap();
    }
}

fn a_device_is_gone_though_the_class_file_has_a_mistake(lab: &Lab) {
    let host = chips();
    let bundle = two_chips(&host).build().unwrap();
    assert_unplugged_is_gone(lab, &host, &bundle, "class", |_| {
        host.add_class("chips", "version = 1\nresource = \n")
            .unwrap();
    });
    for damaged in [None, Some("version = 1\nresource = \n"), Some("")] {
        let host = chips();
        let bundle = plain(Rootfs::Busybox).build().unwrap();
        let running = lab.start(&bundle);
        let cgroup = cgroup(lab, &running);
        done(lab, &host, &["attach", bundle.id(), "chips=3"]);
        match damaged {
            None => fs::remove_file(host.classes().join("chips.toml")).unwrap(),
            Some(text) => host.add_class("chips", text).unwrap(),
        }
        done(lab, &host, &["detach", bundle.id(), "chips=3"]);
        assert!(!opens(&cgroup, &host, 3), "{damaged:?}: the rule is left");
        assert!(records(&host).is_empty(), "{damaged:?}");
    }
}

fn a_device_is_gone_though_the_kubelets_record_is_damaged(lab: &Lab) {
    const UID: &str = "00000000-0000-4000-8000-000000000001";
    let without_the_pod =
        serde_json::json!({"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}},
        "Checksum": 0})
        .to_string();
    let cut = "{\"Data\": {\"PodDev";
    for damage in ["", cut, "{}", "removed", &without_the_pod] {
        let host = chips();
        let parent = CgroupParent::new();
        let file = host.path().join("kubelet_internal_checkpoint");
        let devices = ["chip-3".to_owned(), format!("chip-{}", DemoHost::UNLIKE)];
        let entry = serde_json::json!({"PodUID": UID, "ContainerName": Pod::CONTAINER,
            "ResourceName": "example.com/chip", "DeviceIDs": {"-1": devices}, "AllocResp": ""});
        let data = serde_json::json!({"PodDeviceEntries": [entry], "RegisteredDevices": {}});
        fs::write(
            &file,
            serde_json::json!({"Data": data, "Checksum": 0}).to_string(),
        )
        .unwrap();
        host.write_config(&format!("[trust]\nkubelet_checkpoint = {file:?}\n"))
            .unwrap();
        let bundle = containerd(two_chips(&host), UID, "default")
            .cgroups_path(in_pod(&parent, UID))
            .build()
            .unwrap();
        assert_unplugged_is_gone(lab, &host, &bundle, damage, |_| match damage {
            "removed" => fs::remove_file(&file).unwrap(),
            damage => fs::write(&file, damage).unwrap(),
        });
    }
}

/// One that is damaged is not taken for one that has nothing.
fn a_damaged_record_is_reported(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let id = bundle.id();
    done(lab, &host, &["attach", id, "dummy-npu=3"]);
    let record = host.root().join("run/boathook/attached").join(id);
    let whole = fs::read_to_string(&record).unwrap();
    for damaged in [
        "",
        "{",
        &whole[..whole.len() / 2],
        &whole.replace(id, "another"),
    ] {
        fs::write(&record, damaged).unwrap();
        for arguments in [&["detach", id][..], &["attach", id, "dummy-npu=2"]] {
            let ran = boathook(lab, &host, arguments);
            assert_eq!(ran.status.code(), Some(6), "{damaged}: {ran:?}");
            assert!(
                ran.stderr.contains(record.to_str().unwrap()),
                "{damaged}: {ran:?}"
            );
        }
        let listed = boathook(lab, &host, &["list", "--used", "dummy-npu"]);
        assert!(
            listed.stderr.contains(record.to_str().unwrap()),
            "{damaged}: {listed:?}"
        );
    }
    fs::write(&record, "{").unwrap();
    let follower = Follower::start(lab, &host);
    assert!(follower.said().contains(record.to_str().unwrap()));
    // Nor is it replaced by that of another container with the same id.
    host.write_config("[class.dummy-npu]\nfollow = true\n")
        .unwrap();
    let (other, _second) = start_with_same_id(lab, &host, id, "npu-2");
    other.delete(id);
    assert_eq!(fs::read_to_string(&record).unwrap(), "{");
    assert!(host.log().contains("not be followed"), "{}", host.log());
    fs::write(&record, &whole).unwrap();
    // One that is damaged while it is followed is reported, once.
    fs::write(&record, &whole[1..]).unwrap();
    tell();
    assert!(wait_until(
        || follower.has_said(record.to_str().unwrap()) == 2
    ));
    tell();
    drop(follower);
    fs::write(&record, whole).unwrap();
    done(lab, &host, &["detach", id]);
    drop(running);
}
