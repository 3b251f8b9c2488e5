//! The hook, in real containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::probe::{Access, Kind, Questions, Report};
use harness::rootfs::Rootfs;

use super::trace::{self, Fault, STRACE};
use crate::lab::{Lab, asking, on_each_cgroup_version};
use crate::tree::{assert_unchanged, listing};

on_each_cgroup_version!(every_call_fails_once, an_optional_library_is_not_left_out);

const NODE: &str = "/dev/dummy-npu3";
/// glibc's loaders, one of which the image has.
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
const LIBRARY: &str = "/usr/lib/boathook/lib/libdummy-npu.so.1";

fn every_call_fails_once(lab: &Lab) {
    if let Some(reason) = trace::missing() {
        return skip::report("failing system calls of the hook", &reason);
    }
    let host = host();
    let recorded = host.path().join("calls");
    let whole = bundle(&host, &trace::recording(&recorded));
    let untouched = Bundle::builder(Rootfs::Glibc).build().unwrap();
    drop(lab.runc.create(&untouched).unwrap());
    let report = lab.probe(&whole);
    assert_whole(&whole, &report, "without a fault");
    let expected = new_paths(&untouched, &whole);
    let before = listing(&host.root());

    for fault in trace::faults(&recorded, 24) {
        let case = fault.to_string();
        let bundle = bundle(&host, &fault.arguments());
        let logged = host.log().len();
        let ran = lab.runc.run(&bundle).unwrap();
        assert!(!ran.stderr.contains("panicked"), "{case}: {}", ran.stderr);
        if ran.status.success() {
            let report = Report::parse(&ran.stdout).unwrap();
            // A directory of class files need not exist, and a class file that cannot
            // be read is left out with a warning. Without one the container requests
            // nothing.
            let is_empty = report.path(NODE).unwrap().kind == Kind::Missing
                && report.path(LIBRARY).unwrap().kind == Kind::Missing;
            let is_left_out = || host.log()[logged..].contains("class left out");
            if !(is_empty && (fault.hides(&host.classes()) || is_left_out())) {
                assert_equipped(&report, &case);
                // An image without a loader has no cache for one.
                if !LOADERS.iter().any(|loader| fault.hides(loader.as_ref())) {
                    assert_in_cache(&bundle, &case);
                }
            }
        } else {
            assert_reports_the_reason(&fault, &ran.stderr);
        }
        lab.assert_nothing_left(&bundle);
        assert_unchanged(&host.root(), &before, &case);
        let more: Vec<_> = new_paths(&untouched, &bundle)
            .difference(&expected)
            .filter(|path| !(fault.kills() && is_temporary(path)))
            .cloned()
            .collect();
        assert!(more.is_empty(), "{case} leaves {more:?} in the image");
    }
}

/// A file of the hook that is to be renamed. A hook that is killed cannot remove it; the
/// engine removes the container, which does not start.
fn is_temporary(path: &str) -> bool {
    path.contains("/.boathook-")
}

/// A library that the class calls optional is left out only where the host does
/// not have it, and not where it could not be looked up.
fn an_optional_library_is_not_left_out(lab: &Lab) {
    if let Some(reason) = trace::missing() {
        return skip::report("failing system calls of the hook", &reason);
    }
    let host = DemoHost::new().unwrap();
    let recorded = host.path().join("calls");
    let whole = bundle(&host, &trace::recording(&recorded));
    assert_whole(&whole, &lab.probe(&whole), "without a fault");
    let libraries = host.libraries();
    let names = [
        libraries.join("libdummy-npu.so.1"),
        libraries.join("libdummy-npu.so.1.2.3"),
        host.root().join("etc/ld.so.cache"),
    ];
    // From the search for libraries to the first mount.
    for fault in trace::faults_between(&recorded, "ld.so.cache", "open_tree", 24) {
        // This says that the host does not have it, or a directory of its path.
        if names.iter().any(|name| fault.hides(name)) {
            continue;
        }
        let case = fault.to_string();
        let bundle = bundle(&host, &fault.arguments());
        let logged = host.log().len();
        let ran = lab.runc.run(&bundle).unwrap();
        // Nobody knows for which containers a class file is that cannot be read.
        if host.log()[logged..].contains("class left out") {
            continue;
        }
        if ran.status.success() {
            assert_whole(&bundle, &Report::parse(&ran.stdout).unwrap(), &case);
        } else {
            assert_reports_the_reason(&fault, &ran.stderr);
        }
    }
}

/// The demo host, whose nodes and library are not optional: a missing file then
/// stops the container.
fn host() -> DemoHost {
    let host = DemoHost::new().unwrap();
    let class = host.classes().join("dummy-npu.toml");
    let text = fs::read_to_string(class).unwrap();
    let required = text
        .replace("[[edits]]\noptional = true\n", "[[edits]]\n")
        .replace(", optional = true }", " }");
    assert!(!required.contains("optional"), "{required}");
    host.add_class("dummy-npu", &required).unwrap();
    host
}

/// A container with a device and a library, whose hook runs below strace.
fn bundle(host: &DemoHost, strace: &[String]) -> Bundle {
    let stage = Stage::CreateRuntime;
    let wrapper = strace
        .iter()
        .fold(HookCommand::new(Path::new(STRACE)), |wrapper, argument| {
            wrapper.arg(argument)
        });
    let hook = HookCommand::boathook(stage, &host.config_file()).unwrap();
    Bundle::builder(Rootfs::Glibc)
        .hook(stage, hook.behind(wrapper).with_private_run().unwrap())
        .env(DemoHost::VARIABLE, "npu-3")
        .args(asking(&Questions::new().path(NODE).path(LIBRARY)))
        .build()
        .unwrap()
}

/// The device opens, and the library is there and in the loader's cache.
#[track_caller]
fn assert_whole(bundle: &Bundle, report: &Report, case: &str) {
    assert_equipped(report, case);
    assert_in_cache(bundle, case);
}

#[track_caller]
fn assert_equipped(report: &Report, case: &str) {
    assert_eq!(report.path(NODE).unwrap().read, Access::Granted, "{case}");
    assert_eq!(report.path(LIBRARY).unwrap().kind, Kind::File, "{case}");
}

#[track_caller]
fn assert_in_cache(bundle: &Bundle, case: &str) {
    let cache = fs::read(bundle.in_rootfs("/etc/ld.so.cache")).unwrap();
    let known = String::from_utf8_lossy(&cache).contains(LIBRARY);
    assert!(known, "{case}: the loader's cache does not have {LIBRARY}");
}

#[track_caller]
fn assert_reports_the_reason(fault: &Fault, said: &str) {
    assert!(
        fault.silences() || said.contains("boathook: "),
        "{fault}: {said}"
    );
}

/// Paths in the image that are new or different.
fn new_paths(untouched: &Bundle, bundle: &Bundle) -> BTreeSet<String> {
    let before: BTreeSet<_> = listing(&untouched.rootfs()).into_iter().collect();
    listing(&bundle.rootfs())
        .into_iter()
        .filter(|line| !before.contains(line))
        .map(|line| line.split(' ').next().unwrap_or_default().to_string())
        .collect()
}
