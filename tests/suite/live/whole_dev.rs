//! Containers that have the host's whole /dev, by `-v /dev:/dev`, and wait for a device. If they may
//! access every device, as with `--privileged`, nobody has to give them the device.

use std::process::Command;

use harness::demo_host::DemoHost;
use harness::probe::Access;

use super::follow::Follower;
use super::waiting::{FIRST, host, plug, unplug, wait_for, wanting};
use super::{boathook, done};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(a_container_with_all_devices_of_the_host_needs_no_follower);

/// The nodes that every container needs.
fn add_usual_nodes(host: &DemoHost) {
    let mut copy = Command::new("cp");
    copy.args(["-a", "/dev/null", "/dev/zero"])
        .arg(host.root().join("dev"));
    assert!(copy.status().unwrap().success());
}

fn a_container_with_all_devices_of_the_host_needs_no_follower(lab: &Lab) {
    const BY_HOST: &str = "the host's /dev, which the container has, gives";
    const BY_FOLLOWER: &str = "`boathook follow` (boathook-follow.service) gives";
    const NOBODY: &str = "`boathook follow` (boathook-follow.service) does not run";
    let host = host();
    add_usual_nodes(&host);
    let dev = host.root().join("dev");
    for (has_dev, may_access_all, request) in [
        (true, true, "x1?"),
        (true, true, "/dev/zigbee?"),
        (true, true, "all"),
        // The node is there, and cannot be opened.
        (true, false, "x1?"),
        // Docker copies the nodes of the host when it starts a privileged container.
        (false, true, "x1?"),
    ] {
        let case = format!("{request}: {has_dev} {may_access_all}");
        let mut builder = wanting(&host, request);
        if has_dev {
            builder = builder.mount("bind", &dev, "/dev", &["rbind", "rprivate"]);
        }
        if may_access_all {
            builder = builder.all_devices();
        }
        let bundle = builder.build().unwrap();
        let running = lab.start(&bundle);
        let (id, needs_follower) = (bundle.id(), !(has_dev && may_access_all));
        let said = |arguments: &[&str]| {
            let text = boathook(lab, &host, arguments).stdout;
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let doctor = said(&["doctor", id]);
        assert_eq!(
            doctor.contains(BY_HOST),
            !needs_follower,
            "{case}: {doctor}"
        );
        assert_eq!(
            doctor.contains(BY_FOLLOWER),
            needs_follower,
            "{case}: {doctor}"
        );
        assert_eq!(doctor.contains(NOBODY), needs_follower, "{case}: {doctor}");
        let check = said(&["check"]);
        assert_eq!(check.contains(NOBODY), needs_follower, "{case}: {check}");
        let is_waiting = || said(&["list", "--used", "sticks"]).contains("is waiting for");
        assert!(is_waiting(), "{case}");

        plug(&host, "x1", FIRST);
        let seen = running.look("/dev/zigbee").unwrap();
        let is_usable =
            seen.number() == Some(host.device(FIRST).number()) && seen.read == Access::Granted;
        assert_eq!(is_usable, !needs_follower, "{case}: {seen:?}");
        assert_eq!(is_waiting(), needs_follower, "{case}");
        let used = done(lab, &host, &["list", "--used", "sticks"]);
        assert!(!used.contains("did you mean"), "{case}: {used}");
        if needs_follower {
            let _follower = Follower::start(lab, &host);
            wait_for(&running, &host, "/dev/dummy-npu1", Some(FIRST), &case);
        }
        drop(running);
        unplug(&host, "x1");
    }
}
