//! The server of a resource that is withdrawn.

use harness::kubelet::Event;

use crate::listeners::Listeners;
use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};
use crate::pages;

#[test]
fn a_withdrawn_resource_is_not_offered_even_if_a_client_does_not_read() {
    // So many that their list is longer than a narrow window.
    let many = format!("{NPUS}sharing = {{ replicas = 400 }}\n");
    let mut node = Node::new(&[("dummy-npu", &many)])
        .without_rescans()
        .with_arguments(&pages::SERVE);
    let kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let deaf = Listeners::open_narrow(&node.socket(NPU), 1);

    node.remove("classes/dummy-npu.toml");
    wait_until("the socket is gone", || !node.socket(NPU).exists());
    let broken = |event: &Event| matches!(event, Event::StreamBroken { .. });
    kubelet.wait(PATIENCE, broken).unwrap();
    // The server sends the rest of the list to its last client, then ends.
    let tasks = || pages::metric(&address, "boathook_tasks");
    let held = tasks();
    drop(deaf);
    wait_until("the server has ended", || tasks() < held);
}
