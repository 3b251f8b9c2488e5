//! Containers whose cgroup is in another one, as in a pod, or as where an
//! engine itself runs in a container.

use harness::bundle::Bundle;
use harness::cgroup_parent::CgroupParent;
use harness::demo_host::DemoHost;
use harness::probe::Questions;
use harness::rootfs::Rootfs;

use super::{container, node};
use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(a_cgroup_below_one_that_denies);

/// The cgroup above is that of another container, which has no devices. It gets
/// none for the sake of the inner one, which must not start without.
fn a_cgroup_below_one_that_denies(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let parent = CgroupParent::new();
    let outer = Bundle::builder(Rootfs::Busybox)
        .cgroups_path(parent.path())
        .build()
        .unwrap();
    let _outer = lab.runc.create(&outer).unwrap();
    let inner = container(&host, Rootfs::Busybox, "npu-3")
        .cgroups_path(parent.child("inner"))
        .args(asking(&Questions::new().path(node(3))))
        .build()
        .unwrap();
    let ran = lab.runc.run(&inner).unwrap();
    assert!(!ran.status.success(), "{}", ran.stdout);
    let message = format!("{}, which encloses", parent.path().display());
    assert!(ran.stderr.contains(&message), "{}", ran.stderr);
    lab.assert_nothing_left(&inner);
}
