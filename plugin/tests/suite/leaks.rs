//! Tests that kubelets, clients and devices that come and go leave no descriptors, tasks or
//! memory in use.

use harness::kubelet::Event;

use crate::faults::registrations;
use crate::footprint::{Footprint, resident};
use crate::listeners::Listeners;
use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};
use crate::pages;

/// The difference in KiB that two measurements of the memory may have without a leak.
const SLACK: u64 = 1024;

/// A number of restarts after which all buffers have been used once.
const WARM: usize = 100;

#[test]
fn a_thousand_restarts_of_the_kubelet_lose_no_registration_and_leak_nothing() {
    // Four devices are enough, because the test does not depend on their number.
    let four = NPUS.replace("64", "4");
    let mut node = Node::new(&[("dummy-npu", &four)]).with_arguments(&pages::SERVE);
    let mut kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let before = Footprint::at_rest(&node, &address);
    let mut warm = 0;
    for turn in 1..=1000 {
        kubelet.resume().unwrap();
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 4);
        if turn == WARM {
            warm = resident(node.pid());
        }
    }
    let events = kubelet.so_far();
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Started { .. })), 1001);
    assert_eq!(registrations(&kubelet), 1001, "one for each start");
    assert_eq!(count(|event| matches!(event, Event::Refused { .. })), 0);
    before.wait_until_again(&node, &address);
    let end = resident(node.pid());
    assert!(end <= warm + SLACK, "{warm} KiB after {WARM}, {end} KiB");
}

#[test]
fn restarts_leak_nothing_where_the_plugin_watcher_finds_us() {
    let watched = [&pages::SERVE[..], &["--register=watcher"]].concat();
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&watched);
    let mut kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let before = Footprint::at_rest(&node, &address);
    for _ in 0..100 {
        kubelet.resume().unwrap();
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
    }
    before.wait_until_again(&node, &address);
}

#[test]
fn many_streams_are_served_and_those_that_are_cancelled_end() {
    let mut node = Node::new(&[("dummy-npu", NPUS)])
        .without_rescans()
        .with_arguments(&pages::SERVE);
    let kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let before = Footprint::at_rest(&node, &address);
    let open = || pages::metric(&address, r#"boathook_streams{resource="dummy.com/npu"}"#);

    let mut listeners = Listeners::open(&node.socket(NPU), 50, 4);
    assert_eq!(listeners.next(), [Some(64); 200]);
    assert_eq!(open(), 201, "those and the kubelet's");
    node.write("classes/dummy-npu.toml", &NPUS.replace("64", "63"));
    assert_eq!(listeners.next(), [Some(63); 200]);
    assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 63);

    listeners.cancel();
    wait_until("cancelled streams end", || open() == 1);
    // These clients close their connections without cancelling the streams, like a process
    // that was killed.
    let others = Listeners::open(&node.socket(NPU), 50, 1);
    wait_until("others are open", || open() == 51);
    drop(others);
    wait_until("broken streams end", || open() == 1);
    drop(listeners);
    before.wait_until_again(&node, &address);
}
