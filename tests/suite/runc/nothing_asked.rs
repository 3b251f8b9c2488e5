//! A container that requests nothing is as it would be without the hook.

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::probe::Questions;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, asking, on_each_cgroup_version};
use crate::tree::listing;

on_each_cgroup_version!(it_has_the_same_mounts_and_files);

fn it_has_the_same_mounts_and_files(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let stage = Stage::CreateRuntime;
    let hook = HookCommand::boathook(stage, &host.config_file()).unwrap();
    let questions = Questions::new().path("/dev").path("/etc");
    let plain = Bundle::builder(Rootfs::Glibc).args(asking(&questions));
    let cases = [
        ("nothing", plain.clone()),
        (
            "an empty request",
            plain.clone().env(DemoHost::VARIABLE, ""),
        ),
        ("void", plain.clone().env(DemoHost::VARIABLE, "void")),
        (
            "another variable",
            plain.clone().env("OTHER_VISIBLE_DEVICES", "all"),
        ),
    ];
    let without = plain.build().unwrap();
    let expected = lab.probe(&without);
    for (case, builder) in cases {
        let bundle = builder.hook(stage, hook.clone()).build().unwrap();
        let report = lab.probe(&bundle);
        // The source of the root mount is the bundle's own directory.
        assert_eq!(report.mounts[1..], expected.mounts[1..], "{case}");
        for path in ["/dev", "/etc"] {
            let entries =
                |report: &harness::probe::Report| report.path(path).unwrap().entries.clone();
            assert_eq!(entries(&report), entries(&expected), "{case}: {path}");
        }
        assert_eq!(
            listing(&bundle.rootfs()),
            listing(&without.rootfs()),
            "{case}"
        );
        assert_eq!(host.log(), "", "{case}");
    }
}
