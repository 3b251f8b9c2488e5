//! Every form of a request, and its result.

use harness::demo_host::DemoHost;
use harness::demo_host::in_container::{devices, questions};
use harness::rootfs::Rootfs;

use super::container;
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(a_request_names_devices);

/// Requests, each with the first nodes that a container gets.
const CASES: [(&str, &[usize]); 6] = [
    ("all", &[0, 1, 2, 3, 4, 5, 6, 7]),
    ("none", &[]),
    ("void", &[]),
    ("2-4", &[2, 3, 4]),
    ("5,npu-3,3", &[3, 5]),
    ("60-63", &[]),
];

fn a_request_names_devices(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for (request, expected) in CASES {
        let report = lab.look(container(&host, Rootfs::Busybox, request), &questions());
        assert_eq!(devices(&report).unwrap(), expected, "{request:?}");
        assert_eq!(report.env[DemoHost::VARIABLE], request);
    }
}
