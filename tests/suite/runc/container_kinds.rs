//! Containers of every kind.

use harness::demo_host::DemoHost;
use harness::mountinfo;
use harness::probe::{Access, Kind, Questions};
use harness::rootfs::Rootfs;

use super::{container, node};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    every_container_gets_its_devices,
    a_shared_root_leaks_nothing_to_the_host
);

fn about_node_3() -> Questions {
    Questions::new().path(node(3)).path("/usr/lib/boathook/lib")
}

/// Also in an image without a loader, and in one from scratch.
fn every_container_gets_its_devices(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let of = |rootfs| container(&host, rootfs, "npu-3");
    for (kind, container) in [
        ("busybox", of(Rootfs::Busybox)),
        ("glibc", of(Rootfs::Glibc)),
        ("empty", of(Rootfs::Empty)),
        ("read-only", of(Rootfs::Glibc).readonly()),
        ("user namespace", of(Rootfs::Glibc).user_namespace()),
        ("ordinary user", of(Rootfs::Busybox).user(1000, 1000)),
    ] {
        let report = lab.look(container, &about_node_3());
        let is_read_only = report.mount_at("/").unwrap().has_option("ro");
        assert_eq!(is_read_only, kind == "read-only", "{kind}");
        assert_eq!(report.uid == 1000, kind == "ordinary user", "{kind}");
        let node = report.path(node(3)).unwrap();
        assert_eq!(node.read, Access::Granted, "{kind}");
        let directory = report.path("/usr/lib/boathook/lib").unwrap();
        assert_eq!(directory.kind, Kind::Directory, "{kind}");
    }
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
    let running = lab.start(&bundle);
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
