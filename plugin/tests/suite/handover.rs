//! Tests of two instances of the plugin on one node, of which the newer one replaces the earlier
//! one, as in an update of the DaemonSet with `maxSurge`.

use harness::kubelet::{Allocation, Config, Event, FakeKubelet, PluginTracking};
use nix::sys::signal::Signal;

use crate::node::{CARDS, MARK_1, NPU, NPUS, Node, PATIENCE, wait_until};

const FIRST: &str = "boathook-dummy.com_npu.sock";
const SECOND: &str = "boathook-dummy.com_npu@2.sock";

const DETACHED: &str = "serving in place of an earlier boathook-plugin";

fn registered_as(name: &str) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Registered { resource, endpoint } if resource == NPU && endpoint == name)
}

fn is_broken(event: &Event) -> bool {
    matches!(event, Event::StreamBroken { .. })
}

/// Requests a device for one more pod. The kubelet must have a healthy one.
fn admit_pod(kubelet: &FakeKubelet) {
    kubelet.allocate(Allocation::new(NPU, 1)).unwrap();
}

#[test]
fn the_kubelet_has_devices_all_the_time_while_instances_replace_each_other() {
    for tracking in [PluginTracking::ByResource, PluginTracking::BySocket] {
        let mut node = Node::new(&[("dummy-npu", NPUS)]);
        let config = Config::new(&node.path("kubelet"));
        let kubelet = FakeKubelet::start(Config { tracking, ..config }).unwrap();
        node.start_plugin();
        kubelet.wait_devices(PATIENCE, NPU).unwrap();
        let mut instance = node.take_plugin();
        let updates = [
            (SECOND, Signal::SIGTERM),
            (FIRST, Signal::SIGKILL),
            (SECOND, Signal::SIGTERM),
        ];
        for (update, (name, end)) in updates.into_iter().enumerate() {
            let next = node.second_plugin();
            kubelet.wait(PATIENCE, registered_as(name)).unwrap();
            admit_pod(&kubelet);
            wait_until("the earlier instance may end", || {
                node.log().matches(DETACHED).count() == update + 1
            });
            admit_pod(&kubelet);
            instance.end(end);
            admit_pod(&kubelet);
            // The newer instance registers again, so that the kubelet notices its end.
            kubelet.wait(PATIENCE, registered_as(name)).unwrap();
            kubelet.wait_devices(PATIENCE, NPU).unwrap();
            admit_pod(&kubelet);
            wait_until("one socket is left", || node.sockets() == [name]);
            instance = next;
        }
        let events = kubelet.so_far();
        let broken = events.iter().filter(|event| is_broken(event)).count();
        assert_eq!(broken, 0, "{tracking:?}");

        instance.end(Signal::SIGKILL);
        kubelet.wait(PATIENCE, is_broken).unwrap();
        // The kubelet refuses pods until a plugin registers.
        let refused = kubelet.allocate(Allocation::new(NPU, 1)).unwrap_err();
        assert!(refused.contains("0 available"), "{refused}");
        node.start_plugin();
        kubelet.wait_devices(PATIENCE, NPU).unwrap();
        admit_pod(&kubelet);
    }
}

#[test]
fn an_end_of_the_earlier_instance_that_the_kubelet_takes_for_the_newer_ones_is_repaired_at_once() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    let mut earlier = node.take_plugin();
    // As a plugin does that knows no handover: the kubelet forgets nothing.
    let _next = node.second_plugin();
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    kubelet.disconnect(NPU);
    kubelet.wait(PATIENCE, is_broken).unwrap();
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    admit_pod(&kubelet);
    earlier.end(Signal::SIGTERM);
}

#[test]
fn the_earlier_instance_scans_and_writes_nothing_until_the_newer_one_has_ended() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).without_rescans();
    let kubelet = node.serve(NPU);
    let mut newer = node.second_plugin();
    kubelet.wait(PATIENCE, registered_as(SECOND)).unwrap();
    node.wait_log("a newer boathook-plugin serves");
    node.add_card(0, "mark-1", -1);
    node.write("classes/cards.toml", CARDS);
    kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    let serving = format!("serving resource={MARK_1}");
    assert_eq!(node.log().matches(&serving).count(), 1, "{}", node.log());

    newer.end(Signal::SIGKILL);
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    admit_pod(&kubelet);
    assert_eq!(node.log().matches(&serving).count(), 2, "{}", node.log());
}
