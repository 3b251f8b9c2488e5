//! Tests with kubelets that are slow or end at a wrong moment, and with two kubelets at once.

use std::time::Duration;

use harness::kubelet::{Allocation, Event, FakeKubelet, RegisterFault};

use crate::footprint::{Footprint, resident};
use crate::listeners::Listeners;
use crate::node::{NPU, NPUS, Node, PATIENCE};
use crate::pages;

fn node() -> Node {
    Node::new(&[("dummy-npu", NPUS)]).with_arguments(&pages::SERVE)
}

pub(crate) fn registrations(kubelet: &FakeKubelet) -> usize {
    let events = kubelet.so_far();
    let registered = |event: &&Event| matches!(event, Event::Registered { .. });
    events.iter().filter(registered).count()
}

#[test]
fn a_slow_kubelet_is_waited_for_and_not_called_twice() {
    let late = Duration::from_secs(1);
    for fault in [
        RegisterFault::AnswerLate(late),
        RegisterFault::DialLate(late),
    ] {
        let mut node = node();
        let kubelet = node.faulty_kubelet(fault.clone());
        node.start_plugin();
        node.wait_log("registered at ");
        kubelet.wait_devices(PATIENCE, NPU).unwrap();
        let given = kubelet.allocate(Allocation::new(NPU, 2)).unwrap();
        assert_eq!(given.ids.len(), 2);
        assert_eq!(registrations(&kubelet), 1, "{fault:?}");
    }
}

#[test]
fn a_kubelet_that_dies_while_a_plugin_registers_is_found_again() {
    let mut node = node();
    let mut kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let before = Footprint::at_rest(&node, &address);
    for fault in [RegisterFault::Die, RegisterFault::DieDialled] {
        for _ in 0..10 {
            kubelet.set_register_fault(fault.clone());
            kubelet.resume().unwrap();
            // The first event is the end of the previous kubelet, and the second is the end of
            // this one, which ends by itself.
            for _ in 0..2 {
                let stopped = |event: &Event| matches!(event, Event::Stopped {});
                kubelet.wait(PATIENCE, stopped).unwrap();
            }
            kubelet.set_register_fault(RegisterFault::None);
            kubelet.resume().unwrap();
            assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
        }
    }
    before.wait_until_again(&node, &address);
}

#[test]
fn a_kubelet_that_dies_while_a_plugin_answers_is_found_again() {
    let mut node = node();
    let mut kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let before = Footprint::at_rest(&node, &address);
    for turns in (0..20).chain([100, 1000]) {
        kubelet.die_allocating(Allocation::of_ids(NPU, &["npu-3"]), turns);
        kubelet.resume().unwrap();
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
    }
    kubelet
        .allocate(Allocation::of_ids(NPU, &["npu-3"]))
        .unwrap();
    before.wait_until_again(&node, &address);
}

#[test]
fn of_two_kubelets_both_are_served_and_either_may_end() {
    let mut node = node();
    let mut first = node.serve(NPU);
    // The second kubelet clears the directory and binds the same socket path, as during a
    // failed upgrade.
    let second = node.kubelet();
    second.wait_devices(PATIENCE, NPU).unwrap();
    node.write("classes/dummy-npu.toml", &NPUS.replace("64", "63"));
    for kubelet in [&first, &second] {
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 63);
        kubelet.allocate(Allocation::new(NPU, 2)).unwrap();
    }
    first.stop();
    node.write("classes/dummy-npu.toml", &NPUS.replace("64", "62"));
    assert_eq!(second.wait_devices(PATIENCE, NPU).unwrap().len(), 62);
    assert_eq!((registrations(&first), registrations(&second)), (1, 1));
}

#[test]
fn who_does_not_read_costs_little_and_misses_only_what_is_old() {
    let shared = |count: usize| {
        let text = NPUS.replace("count = 64", &format!("count = {count}"));
        format!("{text}sharing = {{ replicas = 1000 }}\n")
    };
    let mut node = Node::new(&[("dummy-npu", &shared(4))])
        .without_rescans()
        .with_arguments(&pages::SERVE);
    let kubelet = node.kubelet();
    node.start_plugin();
    assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 4000);
    let mut listeners = Listeners::open_narrow(&node.socket(NPU), 20);
    let before = resident(node.pid());
    for turn in 1..=20 {
        let count = if turn < 20 { 2 + turn % 2 } else { 5 };
        node.write("classes/dummy-npu.toml", &shared(count));
        let known = kubelet.wait_devices(PATIENCE, NPU).unwrap();
        assert_eq!(known.len(), count * 1000);
    }
    let grown = resident(node.pid()).saturating_sub(before);
    // All lists for 20 listeners, 20 times each, would take 25 MiB if the plugin kept them.
    assert!(grown < 6 * 1024, "{grown} KiB");
    // A client that did not read gets the lists that were already sent and then the last list,
    // not all 21.
    let messages = listeners.read_until(5000);
    assert!(messages <= 20 * 5, "{messages}");
}
