//! A container that requests nothing is as it would be without the hook.

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::probe::Questions;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, STAGE, asking, hook, on_each_cgroup_version};
use crate::tree::listing;

on_each_cgroup_version!(it_has_the_same_mounts_and_files);

fn it_has_the_same_mounts_and_files(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let questions = Questions::new().path("/dev").path("/etc");
    let plain = Bundle::builder(Rootfs::Glibc).args(asking(&questions));
    let without = plain.clone().build().unwrap();
    let expected = lab.probe(&without);
    for case in [
        (DemoHost::VARIABLE, ""),
        (DemoHost::VARIABLE, "void"),
        ("OTHER_VISIBLE_DEVICES", "all"),
    ] {
        let builder = plain.clone().env(case.0, case.1);
        let bundle = builder.hook(STAGE, hook(&host)).build().unwrap();
        let report = lab.probe(&bundle);
        // The source of the root mount is the bundle's own directory.
        assert_eq!(report.mounts[1..], expected.mounts[1..], "{case:?}");
        for path in ["/dev", "/etc"] {
            let entries =
                |report: &harness::probe::Report| report.path(path).unwrap().entries.clone();
            assert_eq!(entries(&report), entries(&expected), "{case:?}: {path}");
        }
        assert_eq!(
            listing(&bundle.rootfs()),
            listing(&without.rootfs()),
            "{case:?}"
        );
        assert_eq!(host.log(), "", "{case:?}");
    }
}
