//! `boathook list --used`: which containers have which devices, and since when.

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;
use serde_json::Value;

use super::follow::{Follower, assert_follows, followed, replug, with_device};
use super::{boathook, done, plain};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    containers_that_run_are_listed_with_what_they_have,
    a_followed_device_is_listed_while_it_is_there,
);

/// The devices with what has each of them.
fn used(lab: &Lab, host: &DemoHost) -> Vec<(String, Vec<(String, String)>)> {
    let listed = done(lab, host, &["list", "--used", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let devices = listed["devices"].as_array().unwrap().iter();
    let devices = devices.map(|device| {
        let holders = device["holders"].as_array().unwrap().iter();
        let holders = holders.map(|it| (text(&it["container"]), text(&it["since"])));
        (text(&device["id"]), holders.collect())
    });
    devices.collect()
}

fn expected_row(device: &str, holders: &[(&Bundle, &str)]) -> (String, Vec<(String, String)>) {
    let holders = holders.iter();
    let holders = holders.map(|(bundle, since)| (bundle.id().to_owned(), (*since).to_owned()));
    let mut holders: Vec<_> = holders.collect();
    holders.sort();
    (device.to_owned(), holders)
}

fn containers_that_run_are_listed_with_what_they_have(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let nothing = done(lab, &host, &["list", "--used"]);
    assert_eq!(nothing, "no container that runs has a device\n");

    let given = with_device(&host, "npu-3,npu-5").build().unwrap();
    let other = plain(Rootfs::Busybox).build().unwrap();
    // It has the variable and nothing of the hook.
    let without = plain(Rootfs::Busybox).env(DemoHost::VARIABLE, "npu-3");
    let without = without.build().unwrap();
    let runs = lab.start(&given);
    let running = lab.start(&other);
    let _without = lab.start(&without);
    done(lab, &host, &["attach", other.id(), "dummy-npu=npu-5"]);
    done(lab, &host, &["attach", given.id(), "dummy-npu=npu-7"]);
    assert_eq!(
        used(lab, &host),
        [
            expected_row("npu-3", &[(&given, "start")]),
            expected_row("npu-5", &[(&given, "start"), (&other, "attached")]),
            expected_row("npu-7", &[(&given, "attached")]),
        ]
    );
    let table = done(lab, &host, &["list", "--used", "dummy-npu"]);
    let line = |id: &str| table.lines().find(|it| it.contains(id)).unwrap();
    // An id that a user chose is printed whole.
    assert!(line("npu-3 ").ends_with(given.id()), "{table}");
    let attached = format!("{} (attached)", given.id());
    assert!(line("npu-7 ").ends_with(&attached), "{table}");
    assert!(!table.contains("npu-2 "), "{table}");

    // Replugged since, it is not what the container has.
    replug(&host, 3, Some(DemoHost::UNLIKE));
    done(lab, &host, &["detach", given.id()]);
    done(lab, &host, &["detach", other.id()]);
    assert_eq!(
        used(lab, &host),
        [expected_row("npu-5", &[(&given, "start")])]
    );

    done(lab, &host, &["attach", other.id(), "dummy-npu=npu-7"]);
    for (bundle, ended) in [(&given, &runs), (&other, &running)] {
        let mut kill = lab.runc.command("kill").unwrap();
        assert!(kill.args([bundle.id(), "KILL"]).status().unwrap().success());
        assert!(wait_until(|| ended.pid().unwrap() == 0));
    }
    assert_eq!(used(lab, &host), []);
    let nobody = boathook(lab, &host, &["list", "--used"]);
    assert_eq!(nobody.stderr, "", "{nobody:?}");
}

fn a_followed_device_is_listed_while_it_is_there(lab: &Lab) {
    const OTHER: usize = DemoHost::UNLIKE;
    let host = followed();
    let bundle = with_device(&host, "npu-3,npu-5").build().unwrap();
    let running = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    let both = ["npu-3", "npu-5"].map(|device| expected_row(device, &[(&bundle, "start")]));
    assert_eq!(used(lab, &host), both);
    assert_follows(&running, &host, 3, &[None]);
    assert_eq!(used(lab, &host), both[1..]);
    assert_follows(&running, &host, 3, &[Some(OTHER)]);
    assert_eq!(used(lab, &host), both);
}
