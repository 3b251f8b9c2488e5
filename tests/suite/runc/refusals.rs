//! A promise that cannot be kept stops the container, with one line
//! that has the failure, the device, the container, and the fix.

use harness::bundle::{Bundle, BundleBuilder};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::container;
use crate::lab::{Lab, on_each_cgroup_version};
use crate::said::assert_says;
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
    let class = "version = 1\nresource = 'dummy.com/broken'\n\
        request = { env = 'BROKEN_VISIBLE_DEVICES' }\ndiscover = [{ count = 2 }]\n\
        [device]\nid = 'broken-{index}'\nindex = '{index}'\nnodes = ['/dev/broken{index}']\n";
    host.add_class("broken", class).unwrap();
    host.add_file("/dev/broken0", "a regular file").unwrap();
    for (request, words) in [
        ("0", ["/dev/broken0", "broken-0"]),
        ("1", ["/dev/broken1", "broken-1"]),
    ] {
        let bundle = container(&host, Rootfs::Busybox, "npu-3");
        let bundle = bundle.env("BROKEN_VISIBLE_DEVICES", request);
        assert_refused(lab, &host, bundle, &words);
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
    for text in [&ran.stderr, line] {
        assert_says(text, &[words, &[bundle.id()]].concat());
    }
    let after = listing(&bundle.rootfs());
    for new in after.iter().filter(|line| !before.contains(line)) {
        assert!(!new.contains("boathook") && !new.contains("npu"), "{new}");
    }
    lab.assert_nothing_left(&bundle);
}
