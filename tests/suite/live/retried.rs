//! A container that could not be changed: `boathook follow` tries it again after a while.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::patience::PATIENCE;

use super::follow::{Follower, followed, plug_in, unplug, wait_for, with_device};
use super::{reads, started};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(what_could_not_be_changed_is_tried_again);

fn what_could_not_be_changed_is_tried_again(lab: &Lab) {
    const OTHER: usize = DemoHost::UNLIKE;
    let host = followed();
    let bundles = [0, 1].map(|_| with_device(&host, "npu-3").build().unwrap());
    let [refuses, other] = bundles.each_ref().map(|bundle| started(lab, bundle));
    let follower = Follower::start_with(lab, &host, &["--pause", "1"]);
    let refused = "/dev/dummy-npu3 is a directory";
    let wait_for_refusals = |count: usize| {
        let end = Instant::now() + PATIENCE;
        while follower.has_said(refused) < count {
            assert!(Instant::now() < end, "{count}");
            sleep(Duration::from_millis(10));
        }
    };
    unplug(&host, 3);
    wait_for(&refuses, &host, 3, None);
    refuses.output(&["mkdir", &node(3)]).unwrap();
    plug_in(&host, 3, OTHER);
    wait_for(&other, &host, 3, Some(OTHER));
    wait_for_refusals(1);
    assert!(reads(&refuses, 3).is_none());
    // There is no message from here on.
    sleep(Duration::from_millis(1500));
    assert_eq!(
        follower.has_said(refused),
        1,
        "what is the same is said once"
    );
    refuses.output(&["rmdir", &node(3)]).unwrap();
    wait_for(&refuses, &host, 3, Some(OTHER));
    assert_sleeps(&follower);

    // It is as it was before the attempt that failed: there is nothing more to try.
    unplug(&host, 3);
    wait_for(&refuses, &host, 3, None);
    refuses.output(&["mkdir", &node(3)]).unwrap();
    plug_in(&host, 3, 3);
    wait_for(&other, &host, 3, Some(3));
    wait_for_refusals(2);
    unplug(&host, 3);
    wait_for(&other, &host, 3, None);
    sleep(Duration::from_millis(2500));
    assert_sleeps(&follower);
}

/// It is not woken, although it would try again in this time. Other programs of this machine
/// may wake it.
fn assert_sleeps(follower: &Follower) {
    let woken = || {
        let status = fs::read_to_string(format!("/proc/{}/status", follower.pid())).unwrap();
        let mut lines = status.lines();
        let line = lines.find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.unwrap().to_owned()
    };
    let mut windows = (0..6).map(|_| {
        let before = woken();
        sleep(Duration::from_millis(2500));
        before == woken()
    });
    assert!(windows.any(|slept| slept));
}
