//! Containers whose requested device may come later: when it has come, or was there at the start,
//! and is unplugged, they wait for it again.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::bundle::{HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::probe::Access;

use super::follow::{Follower, may_open, tell};
use super::placed::lead;
use super::waiting::{FIRST, OTHER, host, plug, unplug, wait_for, wanting};
use super::{boathook, done};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    an_unplugged_device_is_awaited_again,
    a_device_that_nobody_replaces_is_reported,
    a_wait_that_began_later_ends_by_detach,
    each_name_is_resolved_again,
    a_device_stays_while_one_of_its_names_means_it,
    a_node_without_a_link_stays_with_its_device,
    a_container_is_followed_from_its_start,
);

/// Says whether `list --used` and `check` report that a container waits and nobody gives it the
/// device.
fn shown(lab: &Lab, host: &DemoHost) -> (bool, bool) {
    let used = done(lab, host, &["list", "--used"]);
    let check = boathook(lab, host, &["check"]).stdout;
    let check = check.split_whitespace().collect::<Vec<_>>().join(" ");
    (
        used.contains("is waiting for"),
        check.contains(": waiting, but `boathook follow`"),
    )
}

fn an_unplugged_device_is_awaited_again(lab: &Lab) {
    let host = host();
    for (request, first, other, awaited) in [
        ("x1?", "/dev/dummy-npu1", "/dev/dummy-npu7", "\"x1\""),
        (
            "stick-x1?",
            "/dev/dummy-npu1",
            "/dev/dummy-npu7",
            "\"stick-x1\"",
        ),
        (
            "/dev/zigbee?",
            "/dev/zigbee",
            "/dev/zigbee",
            "\"/dev/zigbee\"",
        ),
        (
            "x1:/dev/modem?",
            "/dev/modem",
            "/dev/modem",
            "\"x1\":/dev/modem",
        ),
        ("all", "/dev/dummy-npu1", "/dev/dummy-npu7", "all"),
    ] {
        for is_there in [false, true] {
            let case = format!("{request}, there: {is_there}");
            if is_there {
                plug(&host, "x1", FIRST);
            }
            let bundle = wanting(&host, request).build().unwrap();
            let running = lab.start(&bundle);
            for (path, index) in [(first, FIRST), (other, OTHER)] {
                {
                    let _follower = Follower::start(lab, &host);
                    plug(&host, "x1", index);
                    wait_for(&running, &host, path, Some(index), &case);
                    assert_eq!(shown(lab, &host), (false, false), "{case}");
                    unplug(&host, "x1");
                    wait_for(&running, &host, path, None, &case);
                    assert_eq!(shown(lab, &host), (true, false), "{case}");
                    let used = done(lab, &host, &["list", "--used"]);
                    let line = format!("is waiting for {awaited} of sticks");
                    assert!(used.contains(&line), "{case}: {used}");
                }
                // A child process of `follow` may hold its lock a moment longer.
                assert!(wait_until(|| shown(lab, &host) == (true, true)), "{case}");
            }
        }
    }
}

fn a_device_that_nobody_replaces_is_reported(lab: &Lab) {
    let host = host();
    for request in ["x1?", "/dev/zigbee?", "all"] {
        plug(&host, "x1", FIRST);
        let bundle = wanting(&host, request).build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(shown(lab, &host), (false, false), "{request}");
        unplug(&host, "x1");
        assert_eq!(shown(lab, &host), (true, true), "{request}: unplugged");
        plug(&host, "x1", OTHER);
        assert_eq!(shown(lab, &host), (true, true), "{request}: other number");
        plug(&host, "x1", FIRST);
        assert_eq!(shown(lab, &host), (false, false), "{request}: as before");
        drop(running);
        unplug(&host, "x1");
    }
    // A device that must be there at the start is no reason to wait.
    plug(&host, "x1", FIRST);
    let bundle = wanting(&host, "x1").build().unwrap();
    let _running = lab.start(&bundle);
    unplug(&host, "x1");
    assert_eq!(shown(lab, &host), (false, false));
}

fn a_wait_that_began_later_ends_by_detach(lab: &Lab) {
    let host = host();
    for (request, named) in [
        ("x1?", None),
        ("x1?", Some("sticks=x1")),
        ("x1?", Some("sticks=stick-x1")),
        ("/dev/zigbee?", Some("sticks=/dev/zigbee")),
        ("x1?,/dev/zigbee?", Some("sticks=x1")),
    ] {
        let case = format!("{request} by {named:?}");
        plug(&host, "x1", FIRST);
        let bundle = wanting(&host, request).build().unwrap();
        let running = lab.start(&bundle);
        let _follower = Follower::start(lab, &host);
        let detach = || {
            let arguments = ["detach", bundle.id()].into_iter().chain(named);
            boathook(lab, &host, &arguments.collect::<Vec<_>>())
        };
        let path = match request {
            "x1?" => "/dev/dummy-npu1",
            _ => "/dev/zigbee",
        };
        // The device of the start stays, and so does its request.
        let refused = detach();
        assert_eq!(refused.status.success(), named.is_none(), "{case}");
        for is_present in [false, true, false] {
            if is_present {
                plug(&host, "x1", FIRST);
            } else {
                unplug(&host, "x1");
            }
            wait_for(&running, &host, path, is_present.then_some(FIRST), &case);
        }
        assert_eq!(shown(lab, &host), (true, false), "{case}");
        let text = detach().success().unwrap().stdout;
        assert!(
            text.contains("stick-x1 of sticks: detached"),
            "{case}: {text}"
        );
        assert!(!text.contains("does not wait for"), "{case}: {text}");
        assert_eq!(shown(lab, &host), (false, false), "{case}");
        for index in [FIRST, OTHER] {
            plug(&host, "x1", index);
            std::thread::sleep(Duration::from_millis(300));
            assert!(!may_open(&running, &host, index), "{case}");
            unplug(&host, "x1");
        }
        assert_eq!(shown(lab, &host), (false, false), "{case}");
    }
}

/// Two names of one device, and later of two devices.
fn each_name_is_resolved_again(lab: &Lab) {
    let host = host();
    for is_there in [false, true] {
        if is_there {
            plug(&host, "x1", FIRST);
        }
        let bundle = wanting(&host, "x1?,/dev/zigbee?").build().unwrap();
        let running = lab.start(&bundle);
        let _follower = Follower::start(lab, &host);
        plug(&host, "x1", FIRST);
        wait_for(&running, &host, "/dev/zigbee", Some(FIRST), "both");
        lead(&host, "/dev/by-id/x2", OTHER);
        lead(&host, "/dev/zigbee", OTHER);
        tell();
        wait_for(
            &running,
            &host,
            "/dev/zigbee",
            Some(OTHER),
            "the link moved",
        );
        wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), "x1 stays");
        assert_eq!(shown(lab, &host), (false, false));
        unplug(&host, "x2");
        wait_for(&running, &host, "/dev/zigbee", None, "the link is gone");
        wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), "x1 stays");
        assert!(wait_until(|| !may_open(&running, &host, OTHER)));
        drop(running);
        unplug(&host, "x1");
    }
}

/// The record has the last name of the device, and this name moves, goes, and comes back.
fn a_device_stays_while_one_of_its_names_means_it(lab: &Lab) {
    let host = host();
    for (is_there, request) in [(true, "x1?,/dev/zigbee?"), (true, "stick-x1?,/dev/zigbee?")] {
        let case = format!("{request}, there: {is_there}");
        if is_there {
            plug(&host, "x1", FIRST);
        }
        let bundle = wanting(&host, request).build().unwrap();
        let running = lab.start(&bundle);
        let follower = Follower::start(lab, &host);
        plug(&host, "x1", FIRST);
        wait_for(&running, &host, "/dev/zigbee", Some(FIRST), &case);
        let stays = |case: &str| {
            let node = running.look("/dev/dummy-npu1").unwrap();
            let number = host.device(FIRST).number();
            assert_eq!(
                (node.number(), node.read),
                (Some(number), Access::Granted),
                "{case}: {}",
                follower.said()
            );
        };
        // The link goes, and comes back.
        for _ in 0..2 {
            fs::remove_file(host.root().join("dev/zigbee")).unwrap();
            tell();
            wait_for(&running, &host, "/dev/zigbee", None, &case);
            stays(&case);
            lead(&host, "/dev/zigbee", FIRST);
            tell();
            wait_for(&running, &host, "/dev/zigbee", Some(FIRST), &case);
            stays(&case);
            assert_eq!(shown(lab, &host), (false, false), "{case}: it is back");
        }
        // It leads to another device, and back.
        lead(&host, "/dev/by-id/x2", OTHER);
        lead(&host, "/dev/zigbee", OTHER);
        tell();
        wait_for(&running, &host, "/dev/zigbee", Some(OTHER), &case);
        stays(&case);
        assert_eq!(shown(lab, &host), (false, false), "{case}: two devices");
        // The first device goes, and only its name waits.
        fs::remove_file(host.root().join("dev/by-id/x1")).unwrap();
        tell();
        wait_for(&running, &host, "/dev/dummy-npu1", None, &case);
        assert!(!may_open(&running, &host, FIRST), "{case}");
        assert_eq!(shown(lab, &host), (true, false), "{case}: one has gone");
        lead(&host, "/dev/by-id/x1", FIRST);
        tell();
        wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), &case);
        assert_eq!(shown(lab, &host), (false, false), "{case}: two again");
        drop(running);
        drop(follower);
        unplug(&host, "x2");
        unplug(&host, "x1");
        fs::remove_dir_all(host.root().join("run/boathook")).unwrap();
    }
}

/// The kernel gives `/dev/ttyUSB0` to the next device: the container keeps the one that it had.
fn a_node_without_a_link_stays_with_its_device(lab: &Lab) {
    let host = host();
    plug(&host, "x1", FIRST);
    let bundle = wanting(&host, "/dev/dummy-npu1?").build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    unplug(&host, "x1");
    wait_for(&running, &host, "/dev/dummy-npu1", None, "away");
    plug(&host, "x2", FIRST);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!may_open(&running, &host, FIRST));
    plug(&host, "x1", OTHER);
    wait_for(&running, &host, "/dev/dummy-npu7", Some(OTHER), "again");
    assert!(!may_open(&running, &host, FIRST));
}

/// `boathook follow` sees the record while other hooks run, before the first process has the
/// container's root.
fn a_container_is_followed_from_its_start(lab: &Lab) {
    let host = host();
    plug(&host, "x1", FIRST);
    let follower = Follower::start(lab, &host);
    let later_hook = HookCommand::new(Path::new("/bin/sleep")).arg("1");
    let bundle = wanting(&host, "x1?").hook(Stage::CreateRuntime, later_hook);
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), "start");
    let unplug_time = Instant::now();
    unplug(&host, "x1");
    wait_for(&running, &host, "/dev/dummy-npu1", None, "unplugged");
    // A container that could not be changed is left alone for 10 s.
    let elapsed = unplug_time.elapsed();
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    assert_eq!(follower.has_said("warning"), 0, "{}", follower.said());
}
