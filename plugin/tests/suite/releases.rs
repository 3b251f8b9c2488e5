//! Tests of several releases of the manifests in one cluster.

use std::process::Command;

use crate::node::{NPU, NPUS, Node, PLUGIN, wait_until};

const POOL_A: &str = "--release=boathook-system/pool-a";
const POOL_B: &str = "--release=boathook-system/pool-b";

/// The DaemonSets of two releases select the same node. Pods of one release may overlap, because
/// an update of their DaemonSet starts the new one first.
#[test]
fn a_second_release_on_the_node_is_refused_and_a_second_pod_is_not() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&[POOL_A]);
    let _kubelet = node.serve(NPU);
    let mut other = Command::new(PLUGIN);
    other.args(["run", POOL_B, "--config"]);
    other.arg(node.path("config.toml")).arg("--kubelet-dir");
    let refused = other.arg(node.path("kubelet")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    let wanted = "release boathook-system/pool-a of boathook runs on this node, and this pod is \
                  of release boathook-system/pool-b; choose different nodes for them";
    assert!(text.contains(wanted), "{text}");
    let served = "dummy.com/npu class=dummy-npu devices=64";
    let servers = || node.log().matches(served).count();
    assert_eq!(servers(), 1, "{}", node.log());
    let _new = node.second_plugin();
    wait_until("the new pod serves", || servers() == 2);
}
