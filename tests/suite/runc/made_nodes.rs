//! Nodes that the host lacks although their driver is loaded: the hook makes them in the
//! container, as on a host without a display before anybody has used its GPUs.

use std::fs;
use std::os::unix::fs::symlink;

use harness::bundle::{Bundle, BundleBuilder};
use harness::demo_host::DemoHost;
use harness::probe::{Access, Kind, Questions};
use harness::rootfs::Rootfs;

use super::node;
use crate::lab::{Lab, asking, on_each_cgroup_version, requesting};

on_each_cgroup_version!(
    a_node_of_a_loaded_driver_is_made_and_opens,
    a_node_of_the_host_is_bound,
    under_a_user_namespace_the_container_is_refused,
    under_a_user_namespace_the_container_starts_without_an_optional_node,
    without_the_driver_the_container_is_refused,
    of_two_devices_only_the_one_that_was_given_is_there,
);

const VARIABLE: &str = "LATE_VISIBLE_DEVICES";
const LATE: &str = "/dev/late/late0";

/// A host whose driver `late` has the number of another device that opens, and no node.
fn host(driver: &str) -> DemoHost {
    let host = DemoHost::new().unwrap();
    let device = host.device(3);
    let class = format!(
        "version = 1\nresource = 'late.com/npu'\nrequest = {{ env = '{VARIABLE}' }}\n\
         discover = [{{ count = 1 }}]\n\
         [device]\nid = 'late-{{index}}'\n\
         nodes = [{{ path = '/dev/late/late{{index}}', driver = 'late', advice = 'run late-setup', \
         make = {{ minor = '{}', mode = '0666' }} }}]\n",
        device.minor
    );
    host.add_class("late", &class).unwrap();
    let list = format!(
        "Character devices:\n  1 mem\n{:3} {driver}\n\nBlock devices:\n259 late\n",
        device.major
    );
    host.add_file("/proc/devices", &list).unwrap();
    host
}

fn container(host: &DemoHost) -> BundleBuilder {
    requesting(host, Rootfs::Busybox, VARIABLE, "all")
        .args(asking(&Questions::new().path(LATE).path(node(3))))
}

/// The log's last line about a container that is not created.
fn refusal(lab: &Lab, host: &DemoHost, bundle: &Bundle) -> String {
    let ran = lab.runc.run(bundle).unwrap();
    assert!(!ran.status.success());
    lab.assert_nothing_left(bundle);
    let log = host.log();
    log.lines().last().unwrap_or_default().to_owned()
}

fn a_node_of_a_loaded_driver_is_made_and_opens(lab: &Lab) {
    let host = host("late");
    let bundle = container(&host).user(1000, 2000).build().unwrap();
    let report = lab.probe(&bundle);
    let seen = report.path(LATE).unwrap();
    assert_eq!(
        (seen.kind, &seen.read),
        (Kind::CharacterDevice, &Access::Granted)
    );
    assert_eq!(seen.number(), Some(host.device(3).number()));
    // A node of its own, and nothing on the host.
    assert!(report.mount_at(LATE).is_none());
    assert!(!host.root().join(&LATE[1..]).exists());
    lab.assert_nothing_left(&bundle);
}

fn a_node_of_the_host_is_bound(lab: &Lab) {
    let host = host("late");
    fs::create_dir(host.root().join("dev/late")).unwrap();
    host.device(3)
        .make_node(&host.root().join(&LATE[1..]))
        .unwrap();
    let report = lab.probe(&container(&host).build().unwrap());
    assert_eq!(report.path(LATE).unwrap().read, Access::Granted);
    assert!(report.mount_at(LATE).is_some());
}

fn under_a_user_namespace_the_container_is_refused(lab: &Lab) {
    let host = host("late");
    let bundle = container(&host).user_namespace().build().unwrap();
    let refused = refusal(lab, &host, &bundle);
    let line = "late-0: /dev/late/late0 has to be created on the host: its driver late is loaded, \
                but the host has no such node";
    assert!(refused.contains(line), "{refused}");
    assert!(refused.contains("; run late-setup"), "{refused}");
}

/// As `/dev/nvidia-modeset` of a host without a display.
fn under_a_user_namespace_the_container_starts_without_an_optional_node(lab: &Lab) {
    let host = host("late");
    let class = fs::read_to_string(host.classes().join("late.toml")).unwrap();
    let node = class.lines().last().unwrap();
    let edits = "[[edits]]\noptional = true\nnodes = ";
    let optional = class.replace(node, &node.replace("nodes = ", edits));
    let needed = optional.replace(
        "driver = 'late'",
        "driver = 'late', needed_for = 'displays'",
    );
    for (class, is_started) in [(optional, true), (needed, false)] {
        let class = class.replace("late{index}", "late0");
        host.add_class("late", &class).unwrap();
        let bundle = container(&host).user_namespace().build().unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        assert_eq!(ran.status.success(), is_started, "{}", ran.stderr);
        assert!(host.log().contains("starts without this node"));
    }
}

fn without_the_driver_the_container_is_refused(lab: &Lab) {
    let host = host("late-2");
    let bundle = container(&host).env(VARIABLE, "late-0").build().unwrap();
    let refused = refusal(lab, &host, &bundle);
    let line = "late-0: /dev/late/late0 does not exist; run late-setup";
    assert!(refused.contains(line), "{refused}");
}

/// The hook in a container of LXC, say, which has one of the machine's two devices: the class's files
/// show both, and `/proc/self/ns/user` of the host's root another user namespace than the first one.
fn of_two_devices_only_the_one_that_was_given_is_there(lab: &Lab) {
    let host = host("late");
    let class = fs::read_to_string(host.classes().join("late.toml")).unwrap();
    let both = class.replace("count = 1", "count = 2");
    host.add_class("late", &both).unwrap();
    let second = LATE.replace("late0", "late1");
    fs::create_dir(host.root().join("dev/late")).unwrap();
    host.device(3)
        .make_node(&host.root().join(&second[1..]))
        .unwrap();
    let questions = Questions::new().path(LATE).path(&second);
    let container = |request: &str| {
        requesting(&host, Rootfs::Busybox, VARIABLE, request)
            .args(asking(&questions))
            .build()
            .unwrap()
    };
    // On the host itself the hook makes the node that lacks.
    let report = lab.probe(&container("all"));
    for path in [LATE, &second] {
        assert_eq!(report.path(path).unwrap().read, Access::Granted, "{path}");
    }
    let namespaces = host.root().join("proc/self/ns");
    fs::create_dir_all(&namespaces).unwrap();
    symlink("user:[4026532400]", namespaces.join("user")).unwrap();
    let report = lab.probe(&container("all"));
    assert_eq!(report.path(&second).unwrap().read, Access::Granted);
    assert_eq!(report.path(LATE).unwrap().kind, Kind::Missing);
    let refused = refusal(lab, &host, &container("late-0"));
    let line = "late-0 is absent: /dev/late/late0 does not exist, and Boathook cannot create it in \
                this user namespace";
    assert!(refused.contains(line), "{refused}");
}
