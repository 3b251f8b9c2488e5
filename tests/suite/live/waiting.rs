//! Containers that wait for devices: they start without them, and `boathook follow` gives them
//! when they come.

use std::fs;

use harness::bundle::{Bundle, BundleBuilder};
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::probe::{Access, Kind};
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::follow::{Follower, followed, may_open, tell};
use super::placed::{STICKS, lead};
use super::{boathook, done, records};
use crate::lab::{Lab, on_each_cgroup_version, requesting};

on_each_cgroup_version!(
    a_device_that_comes_later_is_given,
    all_means_those_that_come_later,
    a_device_that_comes_while_nobody_follows_is_given_later,
    several_containers_wait_for_one_device,
    waiting_ends_by_detach,
    a_class_lets_its_devices_come_later,
    a_container_that_waits_is_shown_and_forgotten,
    a_mark_gives_no_more_than_the_name,
    what_nobody_gives_is_reported,
    a_mistyped_name_gets_a_suggestion,
);

/// The number of the first stick, and after that of one that was plugged in elsewhere.
pub(super) const FIRST: usize = 1;
pub(super) const OTHER: usize = DemoHost::UNLIKE;

pub(super) fn host() -> DemoHost {
    let host = followed();
    host.add_class("sticks", STICKS).unwrap();
    fs::create_dir(host.root().join("dev/by-id")).unwrap();
    host
}

pub(super) fn wanting(host: &DemoHost, request: &str) -> BundleBuilder {
    requesting(host, Rootfs::Busybox, "STICKS", request)
}

/// The stick with this serial number is there, with the node and the number of a demo device.
pub(super) fn plug(host: &DemoHost, serial: &str, index: usize) {
    lead(host, &format!("/dev/by-id/{serial}"), index);
    if serial == "x1" {
        lead(host, "/dev/zigbee", index);
    }
    tell();
}

pub(super) fn unplug(host: &DemoHost, serial: &str) {
    fs::remove_file(host.root().join("dev/by-id").join(serial)).unwrap();
    let _ = fs::remove_file(host.root().join("dev/zigbee"));
    tell();
}

#[track_caller]
pub(super) fn wait_for(
    container: &Container<'_>,
    host: &DemoHost,
    path: &str,
    like: Option<usize>,
    case: &str,
) {
    let mut seen = None;
    let is_so = wait_until(|| {
        let seen = seen.insert(container.look(path).unwrap());
        match like {
            None => seen.kind == Kind::Missing,
            Some(like) => {
                seen.number() == Some(host.device(like).number()) && seen.read == Access::Granted
            }
        }
    });
    assert!(is_so, "{case}: {path} is not as {like:?}: {seen:?}");
}

fn a_device_that_comes_later_is_given(lab: &Lab) {
    let host = host();
    // The request, and where the stick is with the first number and with the other.
    for (request, first, other) in [
        ("x1?", "/dev/dummy-npu1", "/dev/dummy-npu7"),
        ("\"x1\" ?", "/dev/dummy-npu1", "/dev/dummy-npu7"),
        ("stick-x1?", "/dev/dummy-npu1", "/dev/dummy-npu7"),
        ("/dev/zigbee?", "/dev/zigbee", "/dev/zigbee"),
        ("x2?,x1:/dev/modem?", "/dev/modem", "/dev/modem"),
        ("/dev/zigbee:/dev/modem?", "/dev/modem", "/dev/modem"),
    ] {
        let bundle = wanting(&host, request).build().unwrap();
        let running = lab.start(&bundle);
        for path in [first, other] {
            wait_for(&running, &host, path, None, request);
        }
        assert!(!may_open(&running, &host, FIRST), "{request}");
        {
            let follower = Follower::start(lab, &host);
            // The first time, away and back, with another number, and again.
            for (path, index) in [(first, FIRST), (other, OTHER), (first, FIRST)] {
                plug(&host, "x1", index);
                wait_for(&running, &host, path, Some(index), request);
                unplug(&host, "x1");
                wait_for(&running, &host, path, None, request);
                assert!(!may_open(&running, &host, index), "{request}: {index}");
            }
            assert!(
                follower.has_said("stick-x1 of sticks is /dev/") > 0,
                "{}",
                follower.said()
            );
        }
        // Started again: it waits again.
        drop(running);
        let again = lab.start(&bundle);
        let follower = Follower::start(lab, &host);
        plug(&host, "x1", FIRST);
        wait_for(&again, &host, first, Some(FIRST), request);
        drop(again);
        // It is there at the start.
        let there = lab.start(&bundle);
        wait_for(&there, &host, first, Some(FIRST), request);
        plug(&host, "x1", OTHER);
        wait_for(&there, &host, other, Some(OTHER), request);
        assert!(!may_open(&there, &host, FIRST), "{request}");
        drop(there);
        drop(follower);
        unplug(&host, "x1");
        fs::remove_dir_all(host.root().join("run/boathook")).unwrap();
    }
}

fn all_means_those_that_come_later(lab: &Lab) {
    let host = host();
    let bundle = wanting(&host, "all").build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    plug(&host, "x1", FIRST);
    wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), "the first");
    plug(&host, "x2", OTHER);
    wait_for(&running, &host, "/dev/dummy-npu7", Some(OTHER), "another");
    unplug(&host, "x2");
    wait_for(&running, &host, "/dev/dummy-npu7", None, "away");
    assert!(!may_open(&running, &host, OTHER));
    plug(&host, "x3", OTHER);
    wait_for(&running, &host, "/dev/dummy-npu7", Some(OTHER), "a third");
    wait_for(
        &running,
        &host,
        "/dev/dummy-npu1",
        Some(FIRST),
        "the first stays",
    );
}

/// Also one that comes between the hook's plan and its record.
fn a_device_that_comes_while_nobody_follows_is_given_later(lab: &Lab) {
    let host = host();
    let bundle = wanting(&host, "x1?").build().unwrap();
    let running = lab.start(&bundle);
    plug(&host, "x1", FIRST);
    wait_for(&running, &host, "/dev/dummy-npu1", None, "nobody follows");
    let _follower = Follower::start(lab, &host);
    wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), "now");
    // The follower sees a new record, without a message of the kernel.
    let directory = host.root().join("run/boathook/attached");
    let record = directory.join(bundle.id());
    unplug(&host, "x1");
    wait_for(&running, &host, "/dev/dummy-npu1", None, "away");
    drop(running);
    tell();
    assert!(wait_until(|| !record.exists()));
    let again = lab.start(&bundle);
    let text = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    lead(&host, "/dev/by-id/x1", FIRST);
    fs::write(directory.join(".new"), text).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let set_mode = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(directory.join(".new"), set_mode(0o600)).unwrap();
    fs::rename(directory.join(".new"), &record).unwrap();
    tell();
    wait_for(
        &again,
        &host,
        "/dev/dummy-npu1",
        Some(FIRST),
        "a new record",
    );
}

fn several_containers_wait_for_one_device(lab: &Lab) {
    let host = host();
    let bundles = ["x1?", "all", "/dev/zigbee:/dev/modem?", "x2?"];
    let bundles = bundles.map(|request| wanting(&host, request).build().unwrap());
    let running = bundles.each_ref().map(|bundle| lab.start(bundle));
    let _follower = Follower::start(lab, &host);
    plug(&host, "x1", OTHER);
    for (container, path) in
        running
            .iter()
            .zip(["/dev/dummy-npu7", "/dev/dummy-npu7", "/dev/modem"])
    {
        wait_for(container, &host, path, Some(OTHER), path);
    }
    assert!(!may_open(&running[3], &host, OTHER));
    unplug(&host, "x1");
    for container in &running {
        assert!(wait_until(|| !may_open(container, &host, OTHER)));
    }
}

fn waiting_ends_by_detach(lab: &Lab) {
    let host = host();
    let _follower = Follower::start(lab, &host);
    for (request, named) in [
        ("x1?", None),
        ("x1?", Some("sticks=x1")),
        ("x1?", Some("sticks=\"x1\"")),
        ("/dev/zigbee?", Some("sticks=/dev/zigbee")),
        ("all", None),
        ("all", Some("sticks=all")),
    ] {
        let case = format!("{request} by {named:?}");
        let bundle = wanting(&host, request).build().unwrap();
        let detach = || {
            let id = bundle.id();
            let arguments = ["detach", id].into_iter().chain(named);
            done(lab, &host, &arguments.collect::<Vec<_>>())
        };
        // Before it comes.
        let running = lab.start(&bundle);
        let text = detach();
        assert!(text.contains("does not wait for"), "{case}: {text}");
        let text = done(lab, &host, &["list", "--used"]);
        assert!(!text.contains("waiting"), "{case}: {text}");
        assert_is_shown_as_detached(lab, &host, &bundle, &case);
        plug(&host, "x1", OTHER);
        plug(&host, "x1", OTHER);
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!may_open(&running, &host, OTHER), "{case}");
        drop(running);
        unplug(&host, "x1");
        // After it came.
        let running = lab.start(&bundle);
        plug(&host, "x1", OTHER);
        let is_there = wait_until(|| may_open(&running, &host, OTHER));
        assert!(is_there, "{case}");
        wait_until(|| running.look("/dev/dummy-npu7").unwrap().read == Access::Granted);
        let text = detach();
        assert!(
            text.contains("stick-x1 of sticks: detached"),
            "{case}: {text}"
        );
        assert!(!may_open(&running, &host, OTHER), "{case}");
        for _ in 0..2 {
            unplug(&host, "x1");
            plug(&host, "x1", OTHER);
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!may_open(&running, &host, OTHER), "{case}");
        wait_for(&running, &host, "/dev/dummy-npu7", None, &case);
        // While the host has it, and while it does not.
        assert_is_shown_as_detached(lab, &host, &bundle, &case);
        unplug(&host, "x1");
        assert_is_shown_as_detached(lab, &host, &bundle, &case);
        drop(running);
        plug(&host, "x1", OTHER);
        let explained = explain(lab, &host, &bundle);
        assert!(!explained.contains("detached"), "{case}: {explained}");
        unplug(&host, "x1");
    }
    // One of all: the others come nevertheless.
    let bundle = wanting(&host, "all").build().unwrap();
    let running = lab.start(&bundle);
    plug(&host, "x1", OTHER);
    assert!(wait_until(|| may_open(&running, &host, OTHER)));
    done(lab, &host, &["detach", bundle.id(), "sticks=stick-x1"]);
    plug(&host, "x2", FIRST);
    wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), "another");
    assert!(!may_open(&running, &host, OTHER));
    let refused = boathook(lab, &host, &["detach", bundle.id(), "sticks=x9"]);
    assert!(
        refused
            .stderr
            .contains("attached are sticks=stick-x2, sticks=all"),
        "{refused:?}"
    );
}

fn explain(lab: &Lab, host: &DemoHost, bundle: &Bundle) -> String {
    let directory = bundle.directory().display().to_string();
    done(lab, host, &["explain", "--bundle", &directory])
}

/// Neither `explain` nor `doctor` says that the container waits for the stick, or lacks it.
#[track_caller]
fn assert_is_shown_as_detached(lab: &Lab, host: &DemoHost, bundle: &Bundle, case: &str) {
    let explained = explain(lab, host, bundle);
    assert!(explained.contains("  detached  "), "{case}: {explained}");
    for awaited in ["waiting for", "/dev/dummy-npu7"] {
        assert!(!explained.contains(awaited), "{case}: {explained}");
    }
    let doctor = boathook(lab, host, &["doctor", bundle.id()]);
    // The log has what was said when it was started.
    let lines = doctor.stdout.lines();
    let findings: Vec<_> = lines.filter(|line| !line.contains(" log  ")).collect();
    let findings = findings.join("\n");
    assert!(doctor.status.success(), "{case}: {doctor:?}");
    for ended in [
        "`boathook detach` ended the request for ",
        " of sticks, until the container is started again",
    ] {
        assert!(findings.contains(ended), "{case}: {findings}");
    }
    for awaited in ["waiting for", "not in the container"] {
        assert!(!findings.contains(awaited), "{case}: {findings}");
    }
}

fn a_class_lets_its_devices_come_later(lab: &Lab) {
    let host = host();
    host.write_config("[class.sticks]\nlate = true\n").unwrap();
    let bundle = wanting(&host, "x1,/dev/zigbee:/dev/modem").build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    plug(&host, "x1", OTHER);
    wait_for(&running, &host, "/dev/modem", Some(OTHER), "late = true");
    // Nobody gives devices of a class that is not followed.
    host.write_config("[class.sticks]\nfollow = false\n")
        .unwrap();
    let bundle = wanting(&host, "x9?").build().unwrap();
    let explain = ["explain", "--bundle", bundle.directory().to_str().unwrap()];
    let text = done(lab, &host, &explain);
    assert!(
        text.contains("nothing gives it later: set `follow = true` in [class.sticks]"),
        "{text}"
    );
    drop(lab.start(&bundle));
    assert_eq!(records(&host).len(), 1);
    host.write_config("[class.sticks]\nfollow = false\nlate = true\n")
        .unwrap();
    let refused = boathook(lab, &host, &explain);
    assert!(
        refused
            .stderr
            .contains("`late = true` needs `follow = true`"),
        "{refused:?}"
    );
}

fn a_container_that_waits_is_shown_and_forgotten(lab: &Lab) {
    let host = host();
    let bundle = wanting(&host, "x1?").build().unwrap();
    let running = lab.start(&bundle);
    let id = bundle.id();
    let explain = ["explain", "--bundle", bundle.directory().to_str().unwrap()];
    for (arguments, text) in [
        (&explain[..], "waiting for   \"x1\""),
        (
            &["doctor", "--container", id],
            "waiting for \\\"x1\\\" of sticks, which this host does not",
        ),
        (&["list", "--used"], "is waiting for \\\"x1\\\" of sticks"),
        (
            &["list", "--used", "sticks"],
            "is waiting for \\\"x1\\\" of sticks",
        ),
    ] {
        let shown = boathook(lab, &host, arguments);
        let shown = shown.success().unwrap().stdout;
        let is_shown = shown.contains(text) || shown.contains(&text.replace('\\', ""));
        assert!(is_shown, "{arguments:?}: {shown}");
    }
    let log = done(lab, &host, &["log"]);
    assert!(
        log.contains("`boathook follow` (boathook-follow.service) gives it when it comes"),
        "{log}"
    );
    assert_eq!(records(&host), [id]);
    let _follower = Follower::start(lab, &host);
    tell();
    drop(running);
    let directory = host.root().join("run/boathook/attached");
    assert!(wait_until(|| {
        tell();
        fs::read_dir(&directory).unwrap().next().is_none()
    }));
    lab.assert_nothing_left(&bundle);
}

/// An image can set the variable.
fn a_mark_gives_no_more_than_the_name(lab: &Lab) {
    let host = host();
    let config = "[trust]\nallow_env_outside_kubernetes = false\n";
    host.write_config(config).unwrap();
    let bundle = wanting(&host, "x1?").build().unwrap();
    let running = lab.start(&bundle);
    assert_eq!(records(&host), Vec::<String>::new());
    {
        let _follower = Follower::start(lab, &host);
        plug(&host, "x1", OTHER);
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!may_open(&running, &host, OTHER));
    }
    drop(running);
    unplug(&host, "x1");
    // The access that was allowed at the start is denied now.
    host.write_config("").unwrap();
    let running = lab.start(&bundle);
    assert_eq!(records(&host), [bundle.id()]);
    host.write_config(config).unwrap();
    let _follower = Follower::start(lab, &host);
    plug(&host, "x1", OTHER);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!may_open(&running, &host, OTHER));
    drop(running);
    for (request, reason) in [
        ("0?", "an index or a range, which means other devices"),
        ("0-3?", "an index or a range, which means other devices"),
        ("sticks.com/x=y?", "is of the kind sticks.com/x"),
        ("/dev/dummy-npu4?", "it is a node of none of them"),
        ("/dev/shm/x?", "cannot be trusted"),
    ] {
        host.write_config("").unwrap();
        fs::create_dir_all(host.root().join("dev/shm")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(host.root().join("dev/shm"), mode).unwrap();
        let _ = std::os::unix::fs::symlink("../dummy-npu2", host.root().join("dev/shm/x"));
        let bundle = wanting(&host, request).build().unwrap();
        let explain = ["explain", "--bundle", bundle.directory().to_str().unwrap()];
        let refused = boathook(lab, &host, &explain);
        assert!(!refused.status.success(), "{request}: {refused:?}");
        assert!(refused.stderr.contains(reason), "{request}: {refused:?}");
    }
}

/// A container that waits gets nothing if `boathook follow` does not run.
fn what_nobody_gives_is_reported(lab: &Lab) {
    const NOBODY: &str = "`boathook follow` (boathook-follow.service) does not run";
    const START: &str = "systemctl enable --now boathook-follow.service";
    let host = host();
    for (request, awaited) in [("x1?", "\"x1\""), ("all", "all")] {
        let bundle = wanting(&host, request).build().unwrap();
        let running = lab.start(&bundle);
        let id = bundle.id();
        let doctor = || boathook(lab, &host, &["doctor", id]);
        let check = || boathook(lab, &host, &["check"]).stdout;
        let asked = |text: &str| {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            (words.contains(NOBODY), words.contains(START))
        };
        // To wait is no fault, also for all of a class that has nothing.
        let said = doctor();
        assert!(said.status.success(), "{request}: {said:?}");
        let waiting = format!("waiting for {awaited} of sticks");
        assert!(said.stdout.contains(&waiting), "{request}: {said:?}");
        assert_eq!(asked(&said.stdout), (true, true), "{request}: {said:?}");
        assert!(
            !said.stdout.contains("not injecting"),
            "{request}: {said:?}"
        );
        let text = check();
        assert_eq!(asked(&text), (true, true), "{request}: {text}");
        assert!(text.contains(&format!("{id}: waiting, but")), "{text}");
        let follower = Follower::start(lab, &host);
        let said = doctor();
        assert!(said.stdout.contains(&waiting), "{request}: {said:?}");
        assert_eq!(asked(&said.stdout), (false, false), "{request}: {said:?}");
        assert_eq!(asked(&check()), (false, false), "{request}");
        plug(&host, "x1", FIRST);
        wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), request);
        drop(follower);
        // It waits for nothing that it lacks. With `?` it asks for the device to come back, too.
        let comes_back = request.ends_with('?');
        assert_eq!(
            asked(&doctor().stdout),
            (comes_back, comes_back),
            "{request}"
        );
        assert_eq!(asked(&check()), (false, false), "{request}");
        drop(running);
        unplug(&host, "x1");
    }
}

fn a_mistyped_name_gets_a_suggestion(lab: &Lab) {
    let host = host();
    lead(&host, "/dev/by-id/f074cc5adcc9ed11", FIRST);
    let bundle = wanting(&host, "f074cc5adcc9ed12?").build().unwrap();
    let running = lab.start(&bundle);
    let id = bundle.id();
    let directory = bundle.directory().to_str().unwrap();
    let meant = "did you mean f074cc5adcc9ed11 (also called stick-f074cc5adcc9ed11)?";
    for (arguments, words) in [
        (&["explain", "--bundle", directory][..], meant),
        (&["doctor", id], meant),
        (&["log"], meant),
        (&["list", "--used"], "; did you mean f074cc5adcc9ed11?"),
    ] {
        let text = done(lab, &host, arguments);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    let json = done(lab, &host, &["list", "--used", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["waiting"][0]["did_you_mean"], "f074cc5adcc9ed11");
    drop(running);
    // A name that is like none: the names that are there are listed by a command.
    let bundle = wanting(&host, "9f3ad8e21b44c001?").build().unwrap();
    let _running = lab.start(&bundle);
    let text = done(lab, &host, &["doctor", bundle.id()]);
    assert!(!text.contains("did you mean"), "{text}");
    assert!(text.contains("`boathook list sticks`"), "{text}");
}
