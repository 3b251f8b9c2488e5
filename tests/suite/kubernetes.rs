//! A node from allocation to container: the plugin's devices, the kubelet's record, the
//! hook in a real container.

use harness::cgroup_parent::CgroupParent;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container;
use harness::kubelet::{Allocated, Allocation};
use harness::node::Node;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    what_was_allocated_is_in_the_container,
    thousands_of_shares_are_their_device,
    a_pods_own_variable_gives_nothing_more,
    without_a_record_there_is_no_device
);

fn what_was_allocated_is_in_the_container(lab: &Lab) {
    let (_host, node) = start("");
    let given = allocated(&node, &["npu-5", "npu-3"]);
    assert_eq!(devices_in_a_container(lab, &node, &given), [3, 5]);
    node.stop().unwrap();
}

/// As many as MiB in 24 GB. Their ids are longer than a request may be.
fn thousands_of_shares_are_their_device(lab: &Lab) {
    const SHARES: usize = 24_576;
    let (_host, node) = start(&format!("[class.dummy-npu]\nreplicas = {SHARES}\n"));
    let shares: Vec<String> = (0..SHARES).map(|share| format!("npu-3::{share}")).collect();
    let shares: Vec<&str> = shares.iter().map(String::as_str).collect();
    let given = allocated(&node, &shares);
    assert_eq!(devices_in_a_container(lab, &node, &given), [3]);
    node.stop().unwrap();
}

/// A pod's variable overrides the plugin's, and requests everything.
fn a_pods_own_variable_gives_nothing_more(lab: &Lab) {
    let (_host, node) = start("");
    let mut allocation = Allocation::of_ids(DemoHost::RESOURCE, &["npu-2"]);
    allocation
        .env
        .insert(DemoHost::VARIABLE.to_string(), "all".to_string());
    let given = node.allocate(allocation).unwrap();
    assert_eq!(given.envs[DemoHost::VARIABLE], "all");
    assert_eq!(devices_in_a_container(lab, &node, &given), [2]);
}

/// An image that requests everything, in a pod that was allocated nothing.
fn without_a_record_there_is_no_device(lab: &Lab) {
    let (host, node) = start("");
    let mut stranger = allocated(&node, &["npu-2"]);
    let all = (DemoHost::VARIABLE.to_string(), "all".to_string());
    stranger.envs.extend([all]);
    let annotations = &mut stranger.annotations;
    annotations.retain(|key, _| key.starts_with("io.kubernetes"));
    let uid = annotations.get_mut("io.kubernetes.cri.sandbox-uid");
    *uid.unwrap() = "00000000-0000-4000-8000-000000000000".to_string();
    let devices = devices_in_a_container(lab, &node, &stranger);
    assert!(devices.is_empty(), "{devices:?}");
    let log = host.log();
    assert_eq!(log.lines().count(), 1, "{log}");
}

/// A node whose plugin has registered the devices of a host, with more lines in config.toml.
fn start(config: &str) -> (DemoHost, Node) {
    let host = DemoHost::new().unwrap();
    let node = Node::start(&host, config, DemoHost::RESOURCE).unwrap();
    assert!(node.devices() >= 64);
    (host, node)
}

fn allocated(node: &Node, ids: &[&str]) -> Allocated {
    let allocation = Allocation::of_ids(DemoHost::RESOURCE, ids);
    node.allocate(allocation).unwrap()
}

/// The indices of the devices that a container with this allocation has.
fn devices_in_a_container(lab: &Lab, node: &Node, given: &Allocated) -> Vec<usize> {
    let parent = CgroupParent::new();
    let builder = node.container(Rootfs::Busybox, given, &parent).unwrap();
    let report = lab.look(builder, &in_container::questions());
    in_container::devices(&report).unwrap()
}
