//! A device that no rule allows is refused by the cgroup: so where a later test
//! sees one granted, the hook did it.

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(a_node_without_a_rule_is_refused);

const NODE: &str = "/dev/dummy-npu0";

/// Bound into /dev by the configuration, as the hook does, but without a
/// rule.
fn a_node_without_a_rule_is_refused(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let report = lab.look(
        Bundle::builder(Rootfs::Busybox).bind(&host.node(0), NODE),
        &Questions::new().path(NODE),
    );
    let node = report.path(NODE).unwrap();
    let refused = Access::refused("EPERM");
    assert_eq!(
        (&node.read, &node.write, &node.read_write),
        (&refused, &refused, &refused)
    );
}
