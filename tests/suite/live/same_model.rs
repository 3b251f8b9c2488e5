//! Two sticks of one model without serial numbers. udev gives both the same link, which leads to
//! the one that was plugged in last. A container keeps the stick that it has.

use std::fs;

use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;

use super::follow::{Follower, followed, may_open, tell};
use super::placed::lead;
use super::waiting::wait_for;
use crate::lab::{Lab, on_each_cgroup_version, requesting};

on_each_cgroup_version!(a_stick_stays_when_another_takes_its_link);

/// Sticks that are found by their ports, with all links of udev's.
const PORTS: &str = "version = 1\nresource = 'example.com/stick'\nfollow = true\n\
    request = { env = 'STICKS' }\n\
    discover = [{ path = '/dev/by-path/{port}', attributes = [\
    { name = 'name', link = '/dev/by-path/{port}' }, \
    { path = '/dev/by-id/{model}', leads_to = '/dev/{name}', default = 'none' }] }]\n\
    [device]\nid = 'stick-{port}'\naliases = ['{model}']\n\
    nodes = [{ path = '/dev/{name}', udev_links = true }]\n";

const FIRST: (&str, usize) = ("a", 1);
const SECOND: (&str, usize) = ("b", 7);
const LINK: &str = "/dev/by-id/model";

/// Plugs a stick in. It takes the link of the model.
fn plug(host: &DemoHost, (port, index): (&str, usize)) {
    let (major, minor) = host.device(index).number();
    let database_file = format!("/run/udev/data/c{major}:{minor}");
    host.add_file(
        &database_file,
        &format!("S:by-id/model\nS:by-path/{port}\n"),
    )
    .unwrap();
    lead(host, LINK, index);
    lead(host, &format!("/dev/by-path/{port}"), index);
    tell();
}

/// Unplugs a stick. udev lets the link lead to the other stick, if there is one.
fn unplug(host: &DemoHost, (port, index): (&str, usize), other: Option<usize>) {
    let (major, minor) = host.device(index).number();
    let database_file = format!("run/udev/data/c{major}:{minor}");
    fs::remove_file(host.root().join(database_file)).unwrap();
    fs::remove_file(host.root().join(format!("dev/by-path/{port}"))).unwrap();
    match other {
        Some(other) => lead(host, LINK, other),
        None => fs::remove_file(host.root().join(&LINK[1..])).unwrap(),
    }
    tell();
}

fn a_stick_stays_when_another_takes_its_link(lab: &Lab) {
    let host = followed();
    host.add_class("sticks", PORTS).unwrap();
    for request in [
        LINK,
        "/dev/by-id/model?",
        "model",
        "model?",
        "/dev/by-id/model:/dev/modem?",
        "stick-a",
        "stick-a?",
    ] {
        let node = match request.split_once(':') {
            Some(_) => ["/dev/modem", "/dev/modem"],
            None => ["/dev/dummy-npu1", "/dev/dummy-npu7"],
        };
        plug(&host, FIRST);
        let bundle = |request| requesting(&host, Rootfs::Busybox, "STICKS", request);
        let bundles = [request, "stick-b?"].map(|request| bundle(request).build().unwrap());
        let [running, witness] = bundles.each_ref().map(|bundle| lab.start(bundle));
        let link = || {
            let script = format!("readlink {LINK}; true");
            running.output(&["/bin/sh", "-c", &script]).unwrap()
        };
        let first_link = link();
        {
            let _follower = Follower::start(lab, &host);
            for _ in 0..2 {
                plug(&host, SECOND);
                wait_for(&witness, &host, "/dev/dummy-npu7", Some(7), request);
                wait_for(&running, &host, node[0], Some(1), request);
                assert!(!may_open(&running, &host, 7), "{request}");
                assert_eq!(link(), first_link, "{request}");
                unplug(&host, SECOND, Some(1));
                wait_for(&witness, &host, "/dev/dummy-npu7", None, request);
            }
            // Only the other one is left, so that the request means it.
            plug(&host, SECOND);
            unplug(&host, FIRST, Some(7));
            if request.contains("model") {
                wait_for(&running, &host, node[1], Some(7), request);
                assert!(wait_until(|| !may_open(&running, &host, 1)), "{request}");
                plug(&host, FIRST);
                wait_for(&running, &host, node[1], Some(7), request);
                assert!(!may_open(&running, &host, 1), "{request}");
                unplug(&host, FIRST, Some(7));
            } else {
                wait_for(&running, &host, node[0], None, request);
            }
        }
        drop((running, witness));
        unplug(&host, SECOND, None);
        fs::remove_dir_all(host.root().join("run/boathook")).unwrap();
    }
}
