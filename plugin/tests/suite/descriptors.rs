//! Nothing is left open by what comes and goes.

use harness::kubelet::Event;

use crate::node::{NPU, NPUS, Node, PATIENCE, descriptors, wait_until};

#[test]
fn restarts_of_the_kubelet_leak_no_descriptor() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let mut kubelet = node.kubelet();
    node.start_plugin();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    let before = descriptors(node.pid());
    for _ in 0..100 {
        kubelet.resume().unwrap();
        kubelet
            .wait(PATIENCE, |event| matches!(event, Event::Devices { .. }))
            .unwrap();
    }
    wait_until("no more descriptors than before", || {
        descriptors(node.pid()) <= before
    });
}
