//! A device that no rule allows is refused by the cgroup: so where a later test
//! sees one granted, the hook did it.

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(
    a_node_without_a_rule_is_refused,
    a_node_with_a_rule_is_granted,
    a_node_made_inside_is_refused
);

const NODE: &str = "/dev/dummy-npu0";

/// Bound into /dev by the configuration, as the hook does, but without a
/// rule.
fn a_node_without_a_rule_is_refused(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = Bundle::builder(Rootfs::Busybox)
        .args(asking(&Questions::new().path(NODE)))
        .bind(&host.node(0), NODE)
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    let node = report.path(NODE).unwrap();
    let refused = Access::refused("EPERM");
    assert_eq!(
        (&node.read, &node.write, &node.read_write),
        (&refused, &refused, &refused)
    );
}

/// The same with a rule: it is the rule that makes the difference.
fn a_node_with_a_rule_is_granted(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let device = host.device(0);
    let bundle = Bundle::builder(Rootfs::Busybox)
        .args(asking(&Questions::new().path(NODE)))
        .bind(&host.node(0), NODE)
        .device_rule((device.major, device.minor), "r")
        .unwrap()
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    let node = report.path(NODE).unwrap();
    assert_eq!(node.read, Access::Granted);
    assert_eq!(node.write, Access::refused("EPERM"));
    let number = node.device.unwrap();
    assert_eq!((number.major, number.minor), (device.major, device.minor));
}

/// A container may make any node, and open none that was not given to it.
fn a_node_made_inside_is_refused(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let device = host.device(DemoHost::UNLIKE);
    let questions = Questions::new().new_node("/dev/made", device.major, device.minor);
    let bundle = Bundle::builder(Rootfs::Busybox)
        .args(asking(&questions))
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    let attempt = report.new_node("/dev/made").unwrap();
    assert_eq!(attempt.made, Access::Granted);
    assert_eq!(attempt.read, Some(Access::refused("EPERM")));
}
