//! Requests that name devices by texts with another meaning, by paths of the host, or by a
//! word for devices of which none can be given: a container has the device that was meant, or
//! it does not start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::probe::Access;
use harness::rootfs::Rootfs;

use super::outcome::Outcome;
use crate::lab::{Lab, STAGE, granting, on_each_cgroup_version, requesting};
use crate::live::{boathook, done, plain, reads, records};

on_each_cgroup_version!(
    each_listed_name_gives_its_device_alone,
    a_name_in_the_arguments_of_a_hook_is_no_range,
    a_device_is_attached_and_detached_by_each_listed_name,
    a_path_gives_the_device_that_the_host_has_there,
    all_without_a_healthy_device_is_refused,
    a_list_of_unknown_capabilities_is_refused,
);

const CLASS: &str = "version = 1\nresource = 'example.com/card'\n\
    request = { env = 'CARDS', capabilities_env = 'CARD_CAPABILITIES', \
    default_capabilities = ['use'] }\n\
    discover = [{ path = '/dev/dummy-npu{index:number}', \
    attributes = [{ name = 'name', file = '/sys/class/card/{index}/name' }] }]\n\
    [device]\nid = 'card-{index}'\nindex = '{index}'\naliases = ['{name}', 'npu{index}']\n\
    nodes = ['/dev/dummy-npu{index}']\n\
    health = [{ file = '/sys/class/card/{index}/state', equals = 'ok' }]\n\
    [[edits]]\ncapability = 'use'\nfiles = ['/etc/card.conf']\n";

/// The names that the makers of the devices chose, in the order of the indices.
const NAMES: [&str; DemoHost::NODES] = [
    "3-4",
    "HD Pro Webcam C920",
    "all",
    "a, \"b\"",
    "2-1",
    "None",
    "/dev/dummy-npu1",
    "6",
];

fn host_with_cards() -> DemoHost {
    let host = DemoHost::new().unwrap();
    host.add_class("cards", CLASS).unwrap();
    host.add_file("/etc/card.conf", "the host's file").unwrap();
    for (index, name) in NAMES.iter().enumerate() {
        let file = |attribute: &str| format!("/sys/class/card/{index}/{attribute}");
        host.add_file(&file("name"), name).unwrap();
        host.add_file(&file("state"), "ok").unwrap();
    }
    host
}

/// The names of the devices as `boathook list` prints them, with the devices' indices.
fn listed(lab: &Lab, host: &DemoHost) -> Vec<(usize, String)> {
    let text = done(lab, host, &["list", "cards"]);
    let mut names = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["cards", id, index, ..] = words.as_slice() {
            let device = id.trim_start_matches("card-").parse().unwrap();
            names.push((device, (*id).to_owned()));
            names.extend((*index != "-").then(|| (device, (*index).to_owned())));
        }
        if let Some((id, also)) = line.split_once(" is also ") {
            let device = id.trim_start_matches("card-").parse().unwrap();
            // A quoted name may have a comma.
            let (last, also) = match also.split_once("\"a, ") {
                Some((_, rest)) => {
                    let (rest, also) = rest.split_once("\", ").unwrap();
                    (Some(format!("\"a, {rest}\"")), also)
                }
                None => (None, also),
            };
            let also = also.split(", ").map(str::to_owned).chain(last);
            names.extend(also.map(|name| (device, name)));
        }
    }
    names
}

fn devices(lab: &Lab, host: &DemoHost, value: &str) -> Option<Vec<usize>> {
    Outcome::run(lab, requesting(host, Rootfs::Busybox, "CARDS", value)).devices()
}

/// Fails unless a container with this request is refused with this reason.
#[track_caller]
fn assert_refused(lab: &Lab, host: &DemoHost, env: &[(&str, &str)], reason: &str) {
    let hook = crate::lab::hook(host);
    let container = Bundle::builder(Rootfs::Busybox).hook(STAGE, hook);
    let container = env
        .iter()
        .fold(container, |it, (name, value)| it.env(name, value));
    match Outcome::run(lab, container) {
        Outcome::Refused(said) => assert!(said.contains(reason), "{env:?}: {said}"),
        started @ Outcome::Started(_) => panic!("{env:?}: {:?}", started.devices()),
    }
}

fn each_listed_name_gives_its_device_alone(lab: &Lab) {
    let host = host_with_cards();
    let names = listed(lab, &host);
    let has = |device: usize, name: &str| names.contains(&(device, name.to_owned()));
    for (device, name) in [
        (0, "\"3-4\""),
        (1, "HD Pro Webcam C920"),
        (3, "\"a, \"\"b\"\"\""),
        (4, "\"2-1\""),
        (7, "6"),
        (7, "7"),
    ] {
        assert!(has(device, name), "{name} of {device}: {names:?}");
    }
    // A word, a path, and the index that is another device's name.
    for name in ["all", "None", "none", "/dev/dummy-npu1"] {
        assert!(!names.iter().any(|(_, listed)| listed == name), "{names:?}");
    }
    assert!(!has(6, "6"), "{names:?}");
    let unusual = |name: &str| !name.starts_with("card-") && !name.starts_with("npu");
    for (device, name) in names.iter().filter(|(_, name)| unusual(name)) {
        assert_eq!(devices(lab, &host, name), Some(vec![*device]), "{name}");
    }
    for (value, expected) in [
        ("3-4,0", vec![0]),
        ("0-2", vec![0, 1, 2]),
        ("example.com/card=3-4", vec![0]),
    ] {
        assert_eq!(devices(lab, &host, value), Some(expected), "{value}");
    }
    assert_refused(lab, &host, &[("CARDS", "a, \"b\"")], "no device `a`");
}

fn a_name_in_the_arguments_of_a_hook_is_no_range(lab: &Lab) {
    let host = host_with_cards();
    for (grant, device) in [("cards=3-4", 0), ("cards=HD Pro Webcam C920", 1)] {
        let hook = granting(&host, grant);
        let builder = Bundle::builder(Rootfs::Busybox).hook(STAGE, hook);
        assert_eq!(
            Outcome::run(lab, builder).devices(),
            Some(vec![device]),
            "{grant}"
        );
    }
    let hook = granting(&host, "cards=/dev/dummy-npu3:/dev/dummy-npu5");
    let builder = Bundle::builder(Rootfs::Busybox).hook(STAGE, hook);
    let outcome = Outcome::run(lab, builder);
    assert!(
        matches!(outcome, Outcome::Refused(_)),
        "{:?}",
        outcome.devices()
    );
}

fn a_device_is_attached_and_detached_by_each_listed_name(lab: &Lab) {
    let host = host_with_cards();
    // The marks of a claim and of a list in a name.
    fs::write(host.root().join("sys/class/card/1/name"), "npu0@bus").unwrap();
    fs::write(host.root().join("sys/class/card/5/name"), "npu0,npu2").unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    for (name, device) in [
        ("cards=3-4", 0),
        ("cards=npu0@bus", 1),
        ("cards=\"npu0,npu2\"", 5),
        ("cards=/dev/dummy-npu7", 7),
    ] {
        done(lab, &host, &["attach", bundle.id(), name]);
        for other in 0..DemoHost::NODES {
            let expected = (other == device).then_some(Access::Granted);
            assert_eq!(reads(&running, other), expected, "{name}: {other}");
        }
        done(lab, &host, &["detach", bundle.id(), name]);
        assert_eq!(reads(&running, device), None, "{name}");
        assert!(records(&host).is_empty(), "{name}");
    }
    for name in [
        "cards=none",
        "cards=/dev/dummy-npu3:/dev/dummy-npu5:rwm",
        "cards=,",
    ] {
        let refused = boathook(lab, &host, &["attach", bundle.id(), name]);
        assert!(!refused.status.success(), "{name}");
        assert_eq!(reads(&running, 5), None, "{name}");
    }
}

fn a_path_gives_the_device_that_the_host_has_there(lab: &Lab) {
    let host = host_with_cards();
    fs::create_dir(host.root().join("dev/by-id")).unwrap();
    symlink("../dummy-npu3", host.root().join("dev/by-id/usb-Card")).unwrap();
    // A node of the host's that has the name of a device, and is none.
    host.add_file("/dev/other/dummy-npu5", "").unwrap();
    for (value, device) in [
        ("/dev/dummy-npu3", 3),
        ("/dev/by-id/usb-Card", 3),
        // Device 6 has it as a name.
        ("/dev/dummy-npu1", 1),
        // It is device 3 that is there.
        ("/dev/dummy-npu3:/dev/dummy-npu5", 5),
    ] {
        assert_eq!(devices(lab, &host, value), Some(vec![device]), "{value}");
    }
    for (value, reason) in [
        (
            "/dev/dummy-npu3:/dev/dummy-npu5:rwm",
            "write /dev/dummy-npu3, or",
        ),
        (
            "/dev/dummy-npu3:/dev/dummy-npu5,/dev/dummy-npu5",
            "/dev/dummy-npu5 is claimed by both",
        ),
        ("/dev/dummy-npu3:/dev/null", "something of its own there"),
        ("/dev/dummy-npu3:/dev/shm/a", "something of its own there"),
        ("/dev/dummy-npu3:/dev/../etc/a", "not a plain path"),
        (
            "/dev/other/dummy-npu5",
            "is a regular file, not a device node",
        ),
        ("/dev/by-id/dummy-npu5", "does not exist"),
    ] {
        assert_refused(lab, &host, &[("CARDS", value)], reason);
    }
    // A node that every user of the host can make is not the device that root plugged in.
    let shared = host.root().join("dev/shm");
    fs::create_dir(&shared).unwrap();
    make_shared(&shared);
    symlink("../dummy-npu3", shared.join("card")).unwrap();
    assert_refused(
        lab,
        &host,
        &[("CARDS", "/dev/shm/card")],
        "cannot be trusted",
    );
}

fn make_shared(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, PermissionsExt::from_mode(0o1777)).unwrap();
}

fn all_without_a_healthy_device_is_refused(lab: &Lab) {
    let host = host_with_cards();
    let state = |index: usize| host.root().join(format!("sys/class/card/{index}/state"));
    for index in 0..DemoHost::NODES {
        fs::write(state(index), "too hot").unwrap();
    }
    for reason in ["card-0 is unhealthy: ", "card-7 is unhealthy: ", "too hot"] {
        assert_refused(lab, &host, &[("CARDS", "all")], reason);
    }
    assert_refused(lab, &host, &[("CARDS", "0,all")], "card-0 is unhealthy: ");
    assert_eq!(devices(lab, &host, "3"), Some(vec![3]));
    fs::write(state(4), "ok").unwrap();
    assert_eq!(devices(lab, &host, "all"), Some(vec![4]));
    // A host without the hardware.
    for index in 0..DemoHost::NODES {
        fs::remove_file(host.node(index)).unwrap();
    }
    assert_eq!(devices(lab, &host, "all"), Some(vec![]));
}

fn a_list_of_unknown_capabilities_is_refused(lab: &Lab) {
    let host = host_with_cards();
    for value in ["uses", "use;more", "more use"] {
        let env = [("CARDS", "3"), ("CARD_CAPABILITIES", value)];
        let reason = "names no capability of class cards, which has use;";
        assert_refused(lab, &host, &env, reason);
    }
    let container = requesting(&host, Rootfs::Busybox, "CARDS", "3");
    let container = container.env("CARD_CAPABILITIES", "more,use");
    assert_eq!(Outcome::run(lab, container).devices(), Some(vec![3]));
}
