//! Tests with the largest numbers of devices that the plugin serves, and its memory with them.

use harness::kubelet::Allocation;

use crate::footprint::resident;
use crate::node::{NPU, NPUS, Node, PATIENCE};

/// Returns the text of a class with `devices` devices, each in `replicas` shares. The ids
/// begin with `prefix`.
fn shared(devices: usize, replicas: usize, prefix: &str) -> String {
    let text = NPUS.replace("count = 64", &format!("count = {devices}"));
    let text = text.replace("npu-{index}", &format!("{prefix}-{{index}}"));
    format!("{text}sharing = {{ replicas = {replicas} }}\n")
}

#[test]
fn ten_thousand_devices_are_listed_chosen_from_and_allocated() {
    let mut node = Node::new(&[("dummy-npu", &shared(10, 1000, "npu"))]);
    let kubelet = node.kubelet();
    node.start_plugin();
    let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
    assert_eq!(devices.len(), 10_000);
    let given = kubelet.allocate(Allocation::new(NPU, 16)).unwrap();
    assert_eq!(given.ids.len(), 16);
    // The goal for a release build is 24 MiB. The limit here is higher, because a debug build
    // is larger.
    let resident = resident(node.pid());
    assert!(resident < 32 * 1024, "{resident} KiB");
}

/// The node has two GPUs of 24 GB in shares of 1 MiB, as with `--memory-unit=MiB` of the
/// vendor's plugin. A container gets 8 GB.
#[test]
fn a_gpus_memory_is_divided_into_mib() {
    let gpus = shared(2, 24 * 1024, "GPU-8f0c7b8e-1c5f-4d1c-9a3e-0123456789");
    let gpus = gpus.replace("sharing = {", "sharing = { one_device = true,");
    let mut node = Node::new(&[("dummy-npu", &gpus)]);
    let kubelet = node.kubelet();
    node.start_plugin();
    let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
    assert_eq!(devices.len(), 2 * 24 * 1024);
    let given = kubelet.allocate(Allocation::new(NPU, 8 * 1024)).unwrap();
    let of = |id: &String| id.split("::").next().unwrap().to_owned();
    assert!(given.ids.iter().all(|id| of(id) == of(&given.ids[0])));
    // The container of the DaemonSet has a memory limit of 64 MiB.
    let resident = resident(node.pid());
    assert!(resident < 64 * 1024, "{resident} KiB");
}

#[test]
fn devices_beyond_the_message_limit_are_left_out_and_logged() {
    let long = "x".repeat(50);
    let mut node = Node::new(&[("dummy-npu", &shared(30, 2500, &long))]);
    let kubelet = node.kubelet();
    node.start_plugin();
    let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
    let told = devices.len();
    assert!((50_000..75_000).contains(&told), "{told}");
    let left = 75_000 - told;
    node.wait_log(&format!(
        "dummy.com/npu: {left} devices left out, the kubelet accepts no list of more than \
         4194304 bytes"
    ));
    let last = devices.last().unwrap().id.as_str();
    kubelet.allocate(Allocation::of_ids(NPU, &[last])).unwrap();
}

#[test]
fn a_class_that_declares_millions_costs_no_more() {
    let mut node = Node::new(&[("dummy-npu", &shared(4096, 4096, "npu"))]).without_rescans();
    let kubelet = node.kubelet();
    node.start_plugin();
    // The CDI specification of this class alone has 8193 names, so the first list takes
    // longer.
    let devices = kubelet.wait_devices(3 * PATIENCE, NPU).unwrap();
    assert!(devices.len() > 100_000);
    let resident = resident(node.pid());
    assert!(resident < 400 * 1024, "{resident} KiB");
}
