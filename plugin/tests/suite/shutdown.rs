//! The end of the process.

use std::time::Duration;

use harness::kubelet::Event;
use nix::sys::signal::Signal;

use crate::node::{CARDS, NPU, NPUS, Node, PATIENCE};

#[test]
fn a_signal_ends_the_process_in_under_a_second_and_leaves_no_socket() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut node = Node::new(&[("dummy-npu", NPUS), ("cards", CARDS)]);
        node.add_card(0, "mark-1", -1);
        let kubelet = node.kubelet();
        node.start_plugin();
        kubelet.wait_devices(PATIENCE, NPU).unwrap();
        let (status, took) = node.end_plugin(signal);
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(node.sockets(), [""; 0]);
        kubelet
            .wait(PATIENCE, |event| {
                matches!(event, Event::StreamBroken { .. })
            })
            .unwrap();
    }
}

#[test]
fn it_ends_as_well_while_there_is_no_kubelet() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    node.start_plugin();
    node.wait_log("waiting for the kubelet");
    let (status, took) = node.end_plugin(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}
