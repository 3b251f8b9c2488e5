//! Tests of a handover whose newer instance ends, as when an update is undone, while pods arrive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use harness::kubelet::{Allocation, Config, Event, FakeKubelet, PluginTracking};
use nix::sys::signal::Signal;

use crate::handover::{FIRST, is_broken, registered_as, start_handover};
use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};

/// The time between two pods.
const ARRIVAL: Duration = Duration::from_millis(2);

/// The pods that arrived during an action.
#[derive(Default)]
struct Arrivals {
    admitted: usize,
    /// The kubelet's reasons for the pods that it refused, with the times since the start.
    refused: Vec<(Duration, String)>,
}

impl Arrivals {
    fn assert_all_admitted(&self) {
        let (count, first) = (self.refused.len(), self.refused.first());
        assert_eq!(
            count,
            0,
            "of {} pods; the first one: {first:?}",
            count + self.admitted
        );
        assert!(self.admitted > 0);
    }
}

/// Lets pods that request a device arrive, one after the other, while `action` runs. Each pod has
/// ended before the next one arrives.
fn let_pods_arrive(kubelet: &FakeKubelet, action: impl FnOnce()) -> Arrivals {
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    scope(|threads| {
        let pods = threads.spawn(|| {
            let mut arrivals = Arrivals::default();
            while !is_over.load(Ordering::Relaxed) {
                let mut pod = Allocation::new(NPU, 1);
                pod.pod_uid = format!("pod-{}", arrivals.admitted + arrivals.refused.len());
                let uid = pod.pod_uid.clone();
                match kubelet.allocate(pod) {
                    Ok(_) => arrivals.admitted += 1,
                    Err(reason) => arrivals.refused.push((start.elapsed(), reason)),
                }
                kubelet.end_pod(&uid);
                sleep(ARRIVAL);
            }
            arrivals
        });
        action();
        is_over.store(true, Ordering::Relaxed);
        pods.join().unwrap()
    })
}

/// Waits until the earlier instance has registered for the last time, after which the kubelet
/// notices its end.
fn wait_for_return(node: &Node, kubelet: &FakeKubelet) {
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    wait_until("one socket is left", || node.sockets() == [FIRST]);
}

#[test]
fn no_pod_is_refused_when_the_newer_instance_is_told_to_end_during_a_handover() {
    for tracking in [PluginTracking::ByResource, PluginTracking::BySocket] {
        let mut node = Node::new(&[("dummy-npu", NPUS)]);
        let config = Config::new(&node.path("kubelet"));
        let kubelet = FakeKubelet::start(Config { tracking, ..config }).unwrap();
        let [mut earlier, mut newer] = start_handover(&mut node, &kubelet);
        let arrivals = let_pods_arrive(&kubelet, || {
            newer.end(Signal::SIGTERM);
            wait_for_return(&node, &kubelet);
        });
        arrivals.assert_all_admitted();
        assert!(!kubelet.so_far().iter().any(is_broken), "{tracking:?}");

        // The next update is as the first one would have been.
        let mut next = node.second_plugin();
        let arrivals = let_pods_arrive(&kubelet, || {
            wait_until("the earlier instance may end", || {
                node.log().matches(crate::handover::DETACHED).count() == 3
            });
            earlier.end(Signal::SIGTERM);
            wait_until("no mark is left", || node.sockets().len() == 1);
        });
        arrivals.assert_all_admitted();
        next.end(Signal::SIGKILL);
        kubelet.wait(PATIENCE, is_broken).unwrap();
    }
}

#[test]
fn pods_are_refused_only_until_the_earlier_instance_notices_that_the_newer_one_was_killed() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.kubelet();
    let [mut earlier, mut newer] = start_handover(&mut node, &kubelet);
    let mut registered_after = Duration::ZERO;
    let arrivals = let_pods_arrive(&kubelet, || {
        let start = Instant::now();
        newer.end(Signal::SIGKILL);
        kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
        registered_after = start.elapsed();
        wait_for_pods(&kubelet);
    });
    let late = |(time, _): &&(Duration, String)| *time > registered_after + 10 * ARRIVAL;
    let late: Vec<_> = arrivals.refused.iter().filter(late).collect();
    assert!(late.is_empty(), "{late:?}");
    wait_until("one socket is left", || node.sockets() == [FIRST]);
    earlier.end(Signal::SIGKILL);
    kubelet.wait(PATIENCE, is_broken).unwrap();
}

/// Waits until some pods have arrived.
fn wait_for_pods(kubelet: &FakeKubelet) {
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    sleep(50 * ARRIVAL);
}

/// The earlier instance may hang. Then the kubelet must notice that nobody serves the resource.
#[test]
fn the_kubelet_notices_the_end_of_the_newer_instance_if_the_earlier_one_does_not_serve_again() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.kubelet();
    let [mut earlier, mut newer] = start_handover(&mut node, &kubelet);
    earlier.signal(Signal::SIGSTOP);
    newer.end(Signal::SIGTERM);
    kubelet.wait(PATIENCE, is_broken).unwrap();
    let refused = kubelet.allocate(Allocation::new(NPU, 1)).unwrap_err();
    assert!(refused.contains("0 available"), "{refused}");
    earlier.signal(Signal::SIGCONT);
    kubelet.wait(PATIENCE, registered_as(FIRST)).unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    wait_until("one socket is left", || node.sockets() == [FIRST]);
    earlier.end(Signal::SIGKILL);
    kubelet.wait(PATIENCE, is_broken).unwrap();
}

/// As when the DaemonSet is deleted during an update.
#[test]
fn the_kubelet_notices_that_both_instances_are_told_to_end_at_once() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.kubelet();
    let [mut earlier, mut newer] = start_handover(&mut node, &kubelet);
    newer.signal(Signal::SIGTERM);
    earlier.end(Signal::SIGTERM);
    newer.end(Signal::SIGTERM);
    let is_lost = |event: &Event| is_broken(event);
    kubelet.wait(PATIENCE, is_lost).unwrap();
    let refused = kubelet.allocate(Allocation::new(NPU, 1)).unwrap_err();
    assert!(refused.contains("0 available"), "{refused}");
    assert_eq!(node.sockets(), [""; 0]);
}
