//! The devices that were requested, and no other.

use std::os::unix::fs::MetadataExt;

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::probe::{Access, Kind, Questions};
use harness::rootfs::Rootfs;

use super::{container, node};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    the_hosts_own_nodes_open,
    devices_that_were_not_requested_are_refused,
    access_is_as_the_class_configures,
);

/// With either hook: the same inode as on the host, and it can be opened in every mode.
fn the_hosts_own_nodes_open(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for stage in Stage::ALL {
        let hook = HookCommand::boathook(stage, &host.config_file()).unwrap();
        let report = lab.look(
            Bundle::builder(Rootfs::Busybox)
                .hook(stage, hook)
                .env(DemoHost::VARIABLE, "npu-3,npu-5"),
            &Questions::new().path(node(3)).path(node(5)),
        );
        for index in [3, 5] {
            let seen = report.path(node(index)).unwrap();
            assert_eq!(seen.kind, Kind::CharacterDevice, "{stage:?} {index}");
            assert_eq!(seen.number(), Some(host.device(index).number()));
            let on_host = std::fs::metadata(host.node(index)).unwrap();
            assert_eq!(seen.inode, on_host.ino());
            let opened = (&seen.read, &seen.write, &seen.read_write);
            let granted = Access::Granted;
            // The device behind the alias may refuse writing; the cgroup's
            // refusal is EPERM.
            assert_eq!(opened.0, &granted, "{stage:?} {index}");
            let refused = Access::refused("EPERM");
            let is_allowed = opened.1 != &refused && opened.2 == opened.1;
            assert!(is_allowed, "{stage:?} {opened:?}");
            let mount = report.mount_at(node(index)).unwrap();
            let options = ["ro", "nosuid", "noexec"];
            assert!(options.iter().all(|it| mount.has_option(it)), "{mount:?}");
            assert!(mount.propagation.is_empty(), "{mount:?}");
        }
    }
}

/// Neither the neighbours' nodes nor, if the container makes one itself, a
/// device of another number.
fn devices_that_were_not_requested_are_refused(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let other = host.device(DemoHost::UNLIKE);
    let questions = Questions::new()
        .path(node(3))
        .path(node(2))
        .path(node(DemoHost::UNLIKE))
        .new_node("/dev/made", other.major, other.minor);
    let report = lab.look(container(&host, Rootfs::Busybox, "npu-3"), &questions);
    assert_eq!(report.path(node(3)).unwrap().read, Access::Granted);
    for index in [2, DemoHost::UNLIKE] {
        assert_eq!(report.path(node(index)).unwrap().kind, Kind::Missing);
    }
    let attempt = report.new_node("/dev/made").unwrap();
    assert_eq!(attempt.made, Access::Granted);
    assert_eq!(attempt.read, Some(Access::refused("EPERM")));
}

/// A class that gives a node for reading does not give it for writing.
fn access_is_as_the_class_configures(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let class = "version = 1\nresource = 'dummy.com/reader'\n\
        request = { env = 'READER_VISIBLE_DEVICES' }\ndiscover = [{ count = 1 }]\n\
        [device]\nid = 'reader-{index}'\n\
        nodes = [{ path = '/dev/dummy-npu0', access = 'r' }]\n";
    host.add_class("reader", class).unwrap();
    let container = container(&host, Rootfs::Busybox, "void").env("READER_VISIBLE_DEVICES", "all");
    let report = lab.look(container, &Questions::new().path(node(0)));
    let seen = report.path(node(0)).unwrap();
    assert_eq!(seen.read, Access::Granted);
    assert_eq!(seen.write, Access::refused("EPERM"));
    assert_eq!(seen.read_write, Access::refused("EPERM"));
}
