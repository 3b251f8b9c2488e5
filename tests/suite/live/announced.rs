//! Programs in containers that wait for messages of devices: of the kernel, by a socket, and of
//! udev, by libudev's monitor.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use harness::bundle::{Bundle, BundleBuilder};
use harness::compile::{self, Libc};
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::done;
use super::follow::{Follower, assert_follows, plug_in, replug, tell, unplug, wait_for};
use crate::attacks::renumbered_devices::{STICKS, plug_stick, unplug_stick};
use crate::lab::{Lab, on_each_cgroup_version, requesting};
use crate::said::assert_says;

on_each_cgroup_version!(
    programs_are_told_when_the_container_is_changed,
    programs_are_told_what_is_attached_and_detached,
    who_is_not_to_be_told_is_not,
    a_device_in_another_socket_is_announced_once,
    a_device_that_comes_later_is_announced,
);

const OTHER: usize = DemoHost::UNLIKE;
const LISTENER: &str = "/usr/bin/uevents";
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libudev.so.1";

/// A host whose devices are serial ports in sysfs, with what udev knows of one.
fn ports(announce: bool) -> DemoHost {
    let host = DemoHost::new().unwrap();
    host.write_config(&format!(
        "[class.dummy-npu]\nfollow = true\nannounce = {announce}\n"
    ))
    .unwrap();
    for index in [3, OTHER] {
        let (major, minor) = host.device(index).number();
        let port = format!("/sys/devices/boathook/port{index}");
        let uevent = format!("MAJOR={major}\nMINOR={minor}\nDEVNAME=port{index}\n");
        host.add_file(&format!("{port}/uevent"), &uevent).unwrap();
        let subsystem = host.root().join(&port[1..]).join("subsystem");
        symlink("../../../class/tty", subsystem).unwrap();
        let numbers = host.root().join("sys/dev/char");
        fs::create_dir_all(&numbers).unwrap();
        let number = numbers.join(format!("{major}:{minor}"));
        symlink(format!("../../devices/boathook/port{index}"), number).unwrap();
    }
    let (major, minor) = host.device(OTHER).number();
    let known = format!("/run/udev/data/c{major}:{minor}");
    host.add_file(&known, "I:17\nE:ID_SERIAL=x1\n").unwrap();
    host
}

/// A container whose programs write what they are told to `/kernel` and `/udev`.
fn listening(host: &DemoHost) -> Option<BundleBuilder> {
    listening_with(host, DemoHost::VARIABLE, "npu-3")
}

fn listening_with(host: &DemoHost, variable: &str, value: &str) -> Option<BundleBuilder> {
    if !Path::new(LIBRARY).exists() {
        skip::report(
            "containers are told of devices",
            "no libudev.so.1 on this machine",
        );
        return None;
    }
    let listener = compile::program("uevents.c", Libc::Glibc, &["-ldl"]).unwrap();
    // libudev listens only where udev seems to be.
    let script = format!(
        "mkdir -p /run/udev; touch /run/udev/control; {LISTENER} kernel boathook/port > /kernel & \
         exec {LISTENER} udev tty > /udev"
    );
    let bundle = requesting(host, Rootfs::Glibc, variable, value);
    let bundle = bundle.bind(&listener, LISTENER);
    let library = fs::canonicalize(LIBRARY).unwrap();
    Some(
        bundle
            .bind(&library, LIBRARY)
            .args(["/bin/sh", "-c", &script]),
    )
}

fn start<'a>(lab: &'a Lab, bundle: &'a Bundle) -> Container<'a> {
    let running = lab.start(bundle);
    for file in ["/kernel", "/udev"] {
        wait_for_lines(bundle, file, 0);
    }
    running
}

/// Reads the messages that the container's program has got by now.
fn read_messages(bundle: &Bundle, file: &str) -> Vec<String> {
    let text = fs::read_to_string(bundle.in_rootfs(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until it was told so often, and returns the last message.
#[track_caller]
fn wait_for_lines(bundle: &Bundle, file: &str, count: usize) -> String {
    wait_until(|| read_messages(bundle, file).len() > count);
    let told = read_messages(bundle, file);
    assert_eq!(told.len(), count + 1, "{file}: {told:#?}");
    told[count].clone()
}

fn programs_are_told_when_the_container_is_changed(lab: &Lab) {
    let host = ports(true);
    for kind in ["its own", "user namespace"] {
        let Some(bundle) = listening(&host) else {
            return;
        };
        let bundle = match kind {
            "user namespace" => bundle.user_namespace().build().unwrap(),
            _ => bundle.build().unwrap(),
        };
        let running = start(lab, &bundle);
        // The containers of a pod are told once.
        let beside = super::follow::with_device(&host, "npu-3");
        let beside = beside.network_of(running.pid().unwrap());
        let beside = match kind {
            "user namespace" => None,
            _ => Some(beside.build().unwrap()),
        };
        let _beside = beside.as_ref().map(|bundle| lab.start(bundle));
        let follower = Follower::start(lab, &host);
        let expect = |count: usize, action: &str, index: usize, number: &str, opens: &str| {
            let port = format!("/devices/boathook/port{index}");
            let kernel = wait_for_lines(&bundle, "/kernel", count);
            let begin = format!(
                "from 0 group 1 user 0: {action}@{port} ACTION={action} DEVPATH={port} \
                 SUBSYSTEM=tty DEVNAME=dummy-npu3 MAJOR="
            );
            assert!(kernel.starts_with(&begin), "{kind}: {kernel}");
            assert!(kernel.contains(" SEQNUM="), "{kind}: {kernel}");
            assert!(kernel.ends_with(&format!(": {opens}")), "{kind}: {kernel}");
            let udev = wait_for_lines(&bundle, "/udev", count);
            let serial = if index == OTHER { "x1" } else { "-" };
            let whole = format!(
                "{action} {port} /dev/dummy-npu3 {number} serial {serial} links - \
                 initialized 1: {opens}"
            );
            assert_eq!(udev, whole, "{kind}");
        };
        let number = |index: usize| {
            let (major, minor) = host.device(index).number();
            format!("{major}:{minor}")
        };
        let gone = "No such file or directory";
        unplug(&host, 3);
        expect(1, "remove", 3, &number(3), gone);
        plug_in(&host, 3, OTHER);
        expect(2, "add", OTHER, &number(OTHER), "opens");
        // Without having been away, and while nobody followed.
        drop(follower);
        replug(&host, 3, Some(3));
        let follower = Follower::start(lab, &host);
        wait_for(&running, &host, 3, Some(3));
        let told_by_udev = || read_messages(&bundle, "/udev");
        assert!(
            wait_until(|| told_by_udev().len() >= 5),
            "{:?}",
            told_by_udev()
        );
        let both = told_by_udev()[3..].join("\n");
        assert!(
            both.starts_with("remove /devices/boathook/port7 "),
            "{both}"
        );
        assert!(both.contains("\nadd /devices/boathook/port3 "), "{both}");
        assert_eq!(read_messages(&bundle, "/kernel").len(), 5);
        // Nothing has changed.
        drop(follower);
        drop(Follower::start(lab, &host));
        assert_eq!(read_messages(&bundle, "/udev").len(), 5);
        // udev is slower than the kernel.
        let _follower = Follower::start(lab, &host);
        let known = format!("/run/udev/data/c{}", number(3));
        host.add_file(&known, "E:ID_SERIAL=x3\n").unwrap();
        tell();
        let change = wait_for_lines(&bundle, "/udev", 5);
        assert!(
            change.starts_with("change /devices/boathook/port3 "),
            "{change}"
        );
        assert!(change.contains(" serial x3 "), "{change}");
        fs::remove_file(host.root().join(&known[1..])).unwrap();
    }
}

/// Of nothing that was there before, and by nobody else again.
fn programs_are_told_what_is_attached_and_detached(lab: &Lab) {
    let host = ports(true);
    let Some(bundle) = listening(&host) else {
        return;
    };
    let bundle = bundle.build().unwrap();
    let _running = start(lab, &bundle);
    let _follower = Follower::start(lab, &host);
    let attach = ["attach", bundle.id(), "dummy-npu=7"];
    assert_eq!(OTHER, 7);
    for round in 0..2 {
        for (more, command, action, opens) in [
            (1, attach.as_slice(), "add", "opens"),
            (
                2,
                &["detach", bundle.id()],
                "remove",
                "No such file or directory",
            ),
        ] {
            let count = 2 * round + more;
            done(lab, &host, command);
            let kernel = wait_for_lines(&bundle, "/kernel", count);
            assert_says(&kernel, &[&format!(" {action}@/devices/boathook/port7 ")]);
            let udev = wait_for_lines(&bundle, "/udev", count);
            let begin = format!("{action} /devices/boathook/port7 /dev/dummy-npu7 ");
            assert!(udev.starts_with(&begin), "{udev}");
            assert!(udev.ends_with(&format!(": {opens}")), "{udev}");
            if action == "add" {
                done(lab, &host, command);
            }
            tell();
            sleep(Duration::from_millis(200));
            assert_eq!(read_messages(&bundle, "/udev").len(), count + 1);
        }
    }
}

/// A stick that is requested by its serial number has another id in another socket.
fn a_device_in_another_socket_is_announced_once(lab: &Lab) {
    let host = ports(true);
    let class = STICKS.replace("follow = true", "follow = true\nannounce = true");
    host.add_class("stick", &class).unwrap();
    plug_stick(&host, 3, "AAAA");
    let Some(bundle) = listening_with(&host, "STICKS", "AAAA") else {
        return;
    };
    let bundle = bundle.build().unwrap();
    let _running = start(lab, &bundle);
    let _follower = Follower::start(lab, &host);
    let mut seen = 1;
    for (from, to) in [(3, OTHER), (OTHER, 3)] {
        unplug_stick(&host, from, "AAAA");
        plug_stick(&host, to, "AAAA");
        tell();
        seen += 2;
        let messages = || read_messages(&bundle, "/udev");
        assert!(wait_until(|| messages().len() >= seen), "{:?}", messages());
        // Later looks find nothing new.
        for _ in 0..2 {
            tell();
            sleep(Duration::from_millis(300));
        }
        let last = messages();
        assert_eq!(last.len(), seen, "{last:#?}");
        let [removed, added] = [from, to].map(|index| format!(" /devices/boathook/port{index} "));
        assert!(
            last[seen - 2].starts_with(&format!("remove{removed}")),
            "{last:#?}"
        );
        assert!(
            last[seen - 1].starts_with(&format!("add{added}")),
            "{last:#?}"
        );
        assert_eq!(read_messages(&bundle, "/kernel").len(), seen);
    }
}

/// The first time, and in another socket after that.
fn a_device_that_comes_later_is_announced(lab: &Lab) {
    let host = ports(true);
    let class = STICKS.replace("follow = true", "follow = true\nannounce = true");
    host.add_class("stick", &class).unwrap();
    let Some(bundle) = listening_with(&host, "STICKS", "AAAA?") else {
        return;
    };
    let bundle = bundle.build().unwrap();
    let _running = start(lab, &bundle);
    let _follower = Follower::start(lab, &host);
    plug_stick(&host, 3, "AAAA");
    tell();
    let came = wait_for_lines(&bundle, "/udev", 1);
    assert!(came.starts_with("add /devices/boathook/port3 "), "{came}");
    unplug_stick(&host, 3, "AAAA");
    plug_stick(&host, OTHER, "AAAA");
    tell();
    let moved = wait_for_lines(&bundle, "/udev", 3);
    let expected = format!("add /devices/boathook/port{OTHER} ");
    assert!(moved.starts_with(&expected), "{moved}");
}

/// The host's programs have the messages of the kernel and of udev.
fn who_is_not_to_be_told_is_not(lab: &Lab) {
    for announce in [false, true] {
        let host = ports(announce);
        let Some(bundle) = listening(&host) else {
            return;
        };
        let bundle = if announce {
            bundle.network_of("self").build().unwrap()
        } else {
            bundle.build().unwrap()
        };
        let running = start(lab, &bundle);
        let _follower = Follower::start(lab, &host);
        done(lab, &host, &["attach", bundle.id(), "dummy-npu=7"]);
        done(lab, &host, &["detach", bundle.id()]);
        assert_follows(&running, &host, 3, &[None, Some(OTHER)]);
        sleep(Duration::from_millis(200));
        for file in ["/kernel", "/udev"] {
            assert_eq!(read_messages(&bundle, file), ["ready"], "{announce}");
        }
    }
}
