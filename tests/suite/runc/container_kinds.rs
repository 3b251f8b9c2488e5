//! Containers of every kind.

use harness::demo_host::DemoHost;
use harness::mountinfo;
use harness::probe::{Access, Kind, Questions};
use harness::rootfs::Rootfs;

use super::{container, node};
use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(
    every_image_gets_its_devices,
    a_read_only_container_gets_its_devices,
    a_user_namespace_gets_its_devices,
    a_shared_root_leaks_nothing_to_the_host
);

fn about_node_3() -> Questions {
    Questions::new().path(node(3)).path("/usr/lib/boathook/lib")
}

/// An image without a loader too, and one from scratch.
fn every_image_gets_its_devices(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for rootfs in [Rootfs::Busybox, Rootfs::Glibc, Rootfs::Empty] {
        let bundle = container(&host, rootfs, "npu-3")
            .args(asking(&about_node_3()))
            .build()
            .unwrap();
        let report = lab.probe(&bundle);
        assert_eq!(
            report.path(node(3)).unwrap().read,
            Access::Granted,
            "{rootfs:?}"
        );
        assert_eq!(
            report.path("/usr/lib/boathook/lib").unwrap().kind,
            Kind::Directory
        );
    }
}

fn a_read_only_container_gets_its_devices(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .readonly()
        .args(asking(&about_node_3()))
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    assert!(report.mount_at("/").unwrap().has("ro"));
    assert_eq!(report.path(node(3)).unwrap().read, Access::Granted);
    assert_eq!(
        report.path("/usr/lib/boathook/lib").unwrap().kind,
        Kind::Directory
    );
}

fn a_user_namespace_gets_its_devices(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .user_namespace()
        .args(asking(&about_node_3()))
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    assert_eq!(report.path(node(3)).unwrap().read, Access::Granted);
    let directory = report.path("/usr/lib/boathook/lib").unwrap();
    assert_eq!(directory.kind, Kind::Directory);
}

/// What is mounted in the container does not appear on the host, whatever the
/// propagation of its root. `run` checks that nothing is left; this checks while
/// the container runs.
fn a_shared_root_leaks_nothing_to_the_host(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .rootfs_propagation("shared")
        .build()
        .unwrap();
    let running = lab.runc.create(&bundle).unwrap();
    running.start().unwrap();
    let inside = running.probe(&about_node_3()).unwrap();
    assert!(inside.mount_at(node(3)).is_some());

    let mounts = mountinfo::of_self().unwrap();
    let leaked: Vec<_> = mounts
        .iter()
        .filter(|mount| mount.mount_point.starts_with(bundle.directory()))
        .filter(|mount| mount.mount_point != bundle.rootfs())
        .collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}
