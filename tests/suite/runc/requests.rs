//! Every form of a request, and its result.

use harness::demo_host::DemoHost;
use harness::probe::{Kind, Questions};
use harness::rootfs::Rootfs;

use super::{container, node};
use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(a_request_names_devices);

/// Which of the first nodes a container has.
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
        let bundle = container(&host, Rootfs::Busybox, request).args(about_all_nodes());
        let report = lab.probe(&bundle.build().unwrap());
        assert_eq!(nodes(&report), expected, "{request:?}");
        assert_eq!(report.env[DemoHost::VARIABLE], request);
    }
}

fn about_all_nodes() -> Vec<String> {
    let questions = (0..DemoHost::NODES).fold(Questions::new(), |all, index| all.path(node(index)));
    asking(&questions)
}

fn nodes(report: &harness::probe::Report) -> Vec<usize> {
    let there = |index: &usize| report.path(node(*index)).unwrap().kind != Kind::Missing;
    (0..DemoHost::NODES).filter(there).collect()
}
