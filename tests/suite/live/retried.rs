//! A container that could not be changed: `boathook follow` tries it again after a while.

use std::fs::{self, File};
use std::thread::sleep;
use std::time::Duration;

use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::patience::wait_until;

use super::follow::{Follower, assert_follows, followed, unplug, wait_for, with_device};
use super::{reads, records};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    what_could_not_be_changed_is_tried_again,
    what_another_process_was_changing_is_changed_at_once,
);

fn what_could_not_be_changed_is_tried_again(lab: &Lab) {
    const OTHER: usize = DemoHost::UNLIKE;
    let host = followed();
    let bundles = [0, 1].map(|_| with_device(&host, "npu-3").build().unwrap());
    let [refuses, other] = bundles.each_ref().map(|bundle| lab.start(bundle));
    let follower = Follower::start_with(lab, &host, &["--pause", "1"]);
    let refused = "/dev/dummy-npu3 is a directory";
    let wait_for_refusals = |count: usize| {
        assert!(
            wait_until(|| follower.has_said(refused) >= count),
            "{count}"
        );
    };
    assert_follows(&refuses, &host, 3, &[None]);
    refuses.output(&["mkdir", &node(3)]).unwrap();
    assert_follows(&other, &host, 3, &[Some(OTHER)]);
    wait_for_refusals(1);
    assert!(reads(&refuses, 3).is_none());
    // There is no message from here on.
    sleep(Duration::from_millis(1500));
    assert_eq!(
        follower.has_said(refused),
        1,
        "what is the same is said once"
    );
    let call = fs::read_to_string(format!("/proc/{}/syscall", follower.pid())).unwrap();
    assert!(!waits_without_end(&call), "it will try again: {call}");
    refuses.output(&["rmdir", &node(3)]).unwrap();
    wait_for(&refuses, &host, 3, Some(OTHER));
    assert_waits_for_messages(&follower);

    // It is as it was before the attempt that failed: there is nothing more to try.
    assert_follows(&refuses, &host, 3, &[None]);
    refuses.output(&["mkdir", &node(3)]).unwrap();
    assert_follows(&other, &host, 3, &[Some(3)]);
    wait_for_refusals(2);
    assert_follows(&other, &host, 3, &[None]);
    assert_waits_for_messages(&follower);
}

/// Another process has the container's lock for longer than `boathook follow` waits for it, and not
/// for as long as it tries.
fn what_another_process_was_changing_is_changed_at_once(lab: &Lab) {
    let host = followed();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let container = lab.start(&bundle);
    let follower = Follower::start_with(lab, &host, &["--pause", "3600"]);
    let [id] = <[String; 1]>::try_from(records(&host)).unwrap();
    let path = format!("run/boathook/attached/.{id}.lock");
    let lock = File::create(host.root().join(path)).unwrap();
    lock.lock().unwrap();
    unplug(&host, 3);
    sleep(Duration::from_millis(1500));
    drop(lock);
    wait_for(&container, &host, 3, None);
    assert_waits_for_messages(&follower);
}

/// It waits for messages alone, without a time at which it would try again. How often it is
/// woken says nothing: other programs of this machine cause messages.
pub(super) fn assert_waits_for_messages(follower: &Follower) {
    let call = || fs::read_to_string(format!("/proc/{}/syscall", follower.pid())).unwrap();
    let waits = wait_until(|| waits_without_end(&call()));
    assert!(waits, "{}", follower.said());
}

/// Whether `/proc/PID/syscall` has a poll without a timeout: one of -1 ms, or no time at all.
fn waits_without_end(call: &str) -> bool {
    let mut words = call.split_whitespace();
    let number = words.next().and_then(|word| word.parse().ok());
    let timeout = words.nth(2).and_then(|word| word.strip_prefix("0x"));
    let timeout = timeout.and_then(|word| u64::from_str_radix(word, 16).ok());
    match (number, timeout) {
        #[cfg(target_arch = "x86_64")]
        (Some(libc::SYS_poll), Some(timeout)) => timeout & 0xffff_ffff == 0xffff_ffff,
        (Some(libc::SYS_ppoll), Some(timeout)) => timeout == 0,
        _ => false,
    }
}
