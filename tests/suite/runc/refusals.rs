//! What was promised and cannot be given stops the container, with one line
//! that has the failure, the device, the container, and the fix.

use harness::bundle::{Bundle, BundleBuilder};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::container;
use crate::lab::{Lab, on_each_cgroup_version};
use crate::tree::listing;

on_each_cgroup_version!(
    a_bad_request_stops_the_container,
    a_bad_node_stops_the_container
);

fn a_bad_request_stops_the_container(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let long = "npu-1,".repeat(11_000);
    let cases: [(&str, &[&str]); 5] = [
        ("npu-64", &["npu-64", "dummy-npu"]),
        ("npu-3,gpu-1", &["gpu-1", "dummy-npu"]),
        ("3-1", &["3-1"]),
        ("0-", &["0-"]),
        (&long, &["bytes"]),
    ];
    for (request, words) in cases {
        let bundle = container(&host, Rootfs::Busybox, request);
        assert_refused(lab, &host, bundle, words);
    }
}

fn a_bad_node_stops_the_container(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let class = r#"
        version = 1
        description = "a device that is no device"
        resource = "dummy.com/broken"
        [request]
        env = "BROKEN_VISIBLE_DEVICES"
        [[discover]]
        count = 2
        [device]
        id = "broken-{index}"
        index = "{index}"
        nodes = ["/dev/broken{index}"]
    "#;
    host.add_class("broken", class).unwrap();
    host.add_file("/dev/broken0", "a regular file").unwrap();
    let cases: [(&str, &[&str]); 2] = [
        ("0", &["/dev/broken0", "broken-0"]),
        ("1", &["/dev/broken1", "broken-1"]),
    ];
    for (request, words) in cases {
        let bundle = container(&host, Rootfs::Busybox, "npu-3");
        assert_refused(
            lab,
            &host,
            bundle.env("BROKEN_VISIBLE_DEVICES", request),
            words,
        );
    }
}

/// The container is not created, its files are as they were, nothing is left,
/// and the runtime's error and the log both have the line.
fn assert_refused(lab: &Lab, host: &DemoHost, builder: BundleBuilder, words: &[&str]) {
    let bundle: Bundle = builder.args(["touch", "/ran"]).build().unwrap();
    let before = listing(&bundle.rootfs());
    let ran = lab.runc.run(&bundle).unwrap();
    assert!(!ran.status.success(), "{words:?}");
    let log = host.log();
    let line = log.lines().last().unwrap_or_default();
    for word in words.iter().chain(&[bundle.id()]) {
        assert!(ran.stderr.contains(word), "no `{word}` in {}", ran.stderr);
        assert!(
            line.contains(word),
            "no `{word}` in the log's last line: {line}"
        );
    }
    let ours = before.iter().collect::<std::collections::BTreeSet<_>>();
    let new: Vec<_> = listing(&bundle.rootfs())
        .into_iter()
        .filter(|l| !ours.contains(l))
        .collect();
    assert!(
        !new.iter()
            .any(|line| line.contains("boathook") || line.contains("npu")),
        "{new:?}"
    );
    lab.assert_nothing_left(&bundle);
}
