//! Devices that come back with another number, at another link or in another socket: the
//! container gets the one that it requested, and never the one that has its number by then.

use std::fs::{self};
use std::os::unix::fs::symlink;
use std::thread::sleep;

use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::patience::wait_until;
use harness::probe::Access;
use harness::rootfs::Rootfs;

use super::cgroup_access::{cgroup, opens};
use super::revocation::{A_WHILE, BROKEN, class, idle};
use crate::lab::{Lab, on_each_cgroup_version, requesting};
use crate::live::follow::{Follower, may_open, plug_in, replug, tell};
use crate::live::{done, plain, records};

on_each_cgroup_version!(
    a_device_that_came_back_stays_though_its_class_is_broken,
    a_device_that_is_named_by_a_link_goes_with_it,
    a_node_of_a_class_is_followed,
    a_device_with_the_requested_name_is_followed,
    two_devices_that_exchange_their_sockets_are_followed,
);

/// With the number that it had.
fn a_device_that_came_back_stays_though_its_class_is_broken(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    host.add_class("one", &class("one", "follow = true"))
        .unwrap();
    let bundle = requesting(&host, Rootfs::Busybox, "Vone", "3").args(["/bin/sleep", "1000"]);
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    replug(&host, 3, Some(3));
    sleep(A_WHILE);
    host.add_class("one", BROKEN).unwrap();
    tell();
    sleep(A_WHILE);
    assert!(may_open(&running, &host, 3));
    replug(&host, 3, None);
    assert!(wait_until(|| !may_open(&running, &host, 3)));
    plug_in(&host, 3, 3);
}

fn a_device_that_is_named_by_a_link_goes_with_it(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let by_link = class("one", "follow = true").replace("/dev/dummy-npu", "/dev/by-x/x");
    host.add_class("one", &by_link).unwrap();
    fs::create_dir(host.root().join("dev/by-x")).unwrap();
    symlink("../dummy-npu3", host.root().join("dev/by-x/x3")).unwrap();
    let bundle = idle();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "one=3"]);
    host.add_class("one", BROKEN).unwrap();
    let _follower = Follower::start(lab, &host);
    replug(&host, 3, None);
    assert!(wait_until(|| !may_open(&running, &host, 3)));
}

/// A driver that is loaded again may get other numbers for the nodes of all its devices together.
fn a_node_of_a_class_is_followed(lab: &Lab) {
    const CONTROL: &str = "/dev/one-control";
    let host = DemoHost::new().unwrap();
    let control = host.root().join("dev/one-control");
    let edits = format!("[[edits]]\nnodes = [{{ path = '{CONTROL}', optional = true }}]\n");
    let class = class("one", "follow = true") + &edits;
    let other = DemoHost::UNLIKE;
    for given in ["by the hook", "by attach"] {
        host.add_class("one", &class).unwrap();
        let _ = fs::remove_file(&control);
        host.device(other).make_node(&control).unwrap();
        let bundle = if given == "by the hook" {
            requesting(&host, Rootfs::Busybox, "Vone", "3")
        } else {
            plain(Rootfs::Busybox)
        };
        let bundle = bundle.args(["/bin/sleep", "1000"]).build().unwrap();
        let running = lab.start(&bundle);
        if given == "by attach" {
            done(lab, &host, &["attach", bundle.id(), "one=3"]);
        }
        let cgroup = cgroup(lab, &running);
        let reads_control = || {
            let seen = running.look(CONTROL).unwrap();
            seen.read == Access::Granted && seen.number() == Some(host.device(other).number())
        };
        assert!(reads_control(), "{given}");
        let follower = Follower::start(lab, &host);
        let said = || follower.said();
        // The device keeps its number, and the other number is another device's by now.
        fs::remove_file(&control).unwrap();
        host.device(3).make_node(&control).unwrap();
        tell();
        assert!(
            wait_until(|| !opens(&cgroup, &host, other)),
            "{given}: {}",
            said()
        );
        let is_new = || running.look(CONTROL).unwrap().number() == Some(host.device(3).number());
        assert!(wait_until(is_new), "{given}: {}", said());
        assert!(opens(&cgroup, &host, 3), "{given}");
        fs::remove_file(&control).unwrap();
        tell();
        host.device(other).make_node(&control).unwrap();
        tell();
        assert!(wait_until(reads_control), "{given}: {}", said());
        // Also if the class cannot be read.
        host.add_class("one", BROKEN).unwrap();
        fs::remove_file(&control).unwrap();
        tell();
        assert!(
            wait_until(|| !opens(&cgroup, &host, other)),
            "{given}: {}",
            said()
        );
        assert!(opens(&cgroup, &host, 3), "{given}");
    }
}

/// Sticks whose ids are the sockets that they are plugged into, and that have serial numbers.
pub(crate) const STICKS: &str = "version = 1\nresource = 'example.com/stick'\nfollow = true\n\
    request = { env = 'STICKS' }\n\
    [[discover]]\npath = '/sys/sockets/{n:number}'\n\
    attributes = [{ name = 'serial', file = 'serial' }, { name = 'socket', file = 'socket' }]\n\
    nodes = [{ path = '/dev/dummy-npu{n}', links = ['/dev/by-id/{serial}'] }]\n\
    [device]\nid = 'socket-{socket}'\nindex = '{n}'\naliases = ['{serial}', 'dummy-npu{n}']\n";

/// Plugs a stick into a socket of a host with [`STICKS`].
pub(crate) fn plug_stick(host: &DemoHost, socket: usize, serial: &str) {
    let number = socket.to_string();
    for (name, text) in [("serial", serial), ("socket", &number)] {
        let file = format!("/sys/sockets/{socket}/{name}");
        host.add_file(&file, &format!("{text}\n")).unwrap();
    }
    let links = host.root().join("dev/by-id");
    fs::create_dir_all(&links).unwrap();
    symlink(format!("../dummy-npu{socket}"), links.join(serial)).unwrap();
}

pub(crate) fn unplug_stick(host: &DemoHost, socket: usize, serial: &str) {
    let directory = host.root().join(format!("sys/sockets/{socket}"));
    fs::remove_dir_all(directory).unwrap();
    fs::remove_file(host.root().join("dev/by-id").join(serial)).unwrap();
}

/// A container that requested two sticks by their serial numbers gets both back, in any sockets.
fn two_devices_that_exchange_their_sockets_are_followed(lab: &Lab) {
    let other = DemoHost::UNLIKE;
    for attached in [false, true] {
        let host = DemoHost::new().unwrap();
        host.add_class("stick", STICKS).unwrap();
        plug_stick(&host, 3, "AAAA");
        plug_stick(&host, other, "BBBB");
        let follower = Follower::start(lab, &host);
        let bundle = if attached {
            plain(Rootfs::Busybox)
        } else {
            requesting(&host, Rootfs::Busybox, "STICKS", "AAAA,BBBB")
        };
        let bundle = bundle.args(["/bin/sleep", "1000"]).build().unwrap();
        let running = lab.start(&bundle);
        if attached {
            done(lab, &host, &["attach", bundle.id(), "stick=AAAA,BBBB"]);
        }
        let cgroup = cgroup(lab, &running);
        let has = |first, second| {
            let opened = [3, other].map(|index| opens(&cgroup, &host, index));
            let seen = [3, other].map(|index| running.look(node(index)).unwrap().read);
            let granted = seen.map(|read| read == Access::Granted);
            opened == [first, second] && granted == opened
        };
        assert!(has(true, true), "{attached}");
        // The first is in the socket of the second, which is not there.
        unplug_stick(&host, 3, "AAAA");
        unplug_stick(&host, other, "BBBB");
        plug_stick(&host, other, "AAAA");
        tell();
        let said = || follower.said();
        assert!(wait_until(|| has(false, true)), "{attached}: {}", said());
        plug_stick(&host, 3, "BBBB");
        tell();
        assert!(wait_until(|| has(true, true)), "{attached}: {}", said());
        // They exchange their sockets while nobody looks.
        for (socket, serial) in [(3, "BBBB"), (other, "AAAA")] {
            unplug_stick(&host, socket, serial);
        }
        plug_stick(&host, 3, "AAAA");
        plug_stick(&host, other, "BBBB");
        tell();
        let link = |serial: &str| {
            let command = ["readlink", "-f", &format!("/dev/by-id/{serial}")];
            running.output(&command).unwrap_or_default()
        };
        let links = || link("AAAA").trim() == node(3) && link("BBBB").trim() == node(other);
        assert!(
            wait_until(|| links() && has(true, true)),
            "{attached}: {}",
            said()
        );
        // One of them is taken away.
        unplug_stick(&host, other, "BBBB");
        tell();
        assert!(wait_until(|| has(true, false)), "{attached}: {}", said());
        if attached {
            done(lab, &host, &["detach", bundle.id()]);
            assert!(has(false, false));
            assert!(records(&host).is_empty());
        }
    }
}

/// It is requested by its serial number, by its socket, or by a link.
fn a_device_with_the_requested_name_is_followed(lab: &Lab) {
    let other = DemoHost::UNLIKE;
    for request in [
        "AAAA",
        "/dev/by-id/AAAA",
        "socket-3",
        "3",
        "dummy-npu3",
        "3-3",
    ] {
        for attached in [false, true] {
            let case = format!("{request}, attached: {attached}");
            let host = DemoHost::new().unwrap();
            host.add_class("stick", STICKS).unwrap();
            let plug = |socket: usize, serial: &str| {
                plug_stick(&host, socket, serial);
                tell();
            };
            let unplug = |socket: usize, serial: &str| {
                unplug_stick(&host, socket, serial);
                tell();
            };
            plug(3, "AAAA");
            let _follower = Follower::start(lab, &host);
            let bundle = if attached {
                plain(Rootfs::Busybox)
            } else {
                requesting(&host, Rootfs::Busybox, "STICKS", request)
            };
            let bundle = bundle.args(["/bin/sleep", "1000"]).build().unwrap();
            let running = lab.start(&bundle);
            let device = format!("stick={request}");
            if attached {
                done(lab, &host, &["attach", bundle.id(), &device]);
            }
            let cgroup = cgroup(lab, &running);
            assert!(opens(&cgroup, &host, 3), "{case}");
            unplug(3, "AAAA");
            assert!(wait_until(|| !opens(&cgroup, &host, 3)), "{case}");
            plug(3, "BBBB");
            let by_serial = request.contains("AAAA");
            if by_serial {
                sleep(A_WHILE);
                assert!(!opens(&cgroup, &host, 3), "{case}: another stick");
            } else {
                assert!(wait_until(|| opens(&cgroup, &host, 3)), "{case}");
            }
            plug(other, "AAAA");
            let has_other = || running.look(node(other)).unwrap().read == Access::Granted;
            if by_serial {
                assert!(wait_until(has_other), "{case}: in another socket");
                assert!(!opens(&cgroup, &host, 3), "{case}");
            } else {
                sleep(A_WHILE);
                assert!(!opens(&cgroup, &host, other), "{case}");
            }
            if attached {
                done(lab, &host, &["detach", bundle.id(), &device]);
                assert!(
                    !opens(&cgroup, &host, 3) && !opens(&cgroup, &host, other),
                    "{case}"
                );
                assert!(records(&host).is_empty(), "{case}");
            }
        }
    }
}
