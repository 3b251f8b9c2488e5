//! Containers run, and the probe in them reports what exists.

use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::leftovers;
use harness::probe::{Access, Kind, Questions};
use harness::rootfs::Rootfs;

use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(
    the_probe_reports,
    the_container_is_on_that_cgroup_version,
    a_bundle_contains_what_was_requested,
    a_user_namespace_owns_its_files,
    leftovers_are_seen,
    output_is_captured_over_create_and_start,
    a_container_does_not_dirty_the_next_one
);

/// In an image with nothing else in it too.
fn the_probe_reports(lab: &Lab) {
    let questions = Questions::new()
        .path("/dev/null")
        .path("/bin")
        .path("/nowhere");
    for rootfs in [Rootfs::Busybox, Rootfs::Empty] {
        let bundle = Bundle::builder(rootfs)
            .env("GREETING", "ahoy")
            .args(asking(&questions))
            .build()
            .unwrap();
        let report = lab.probe(&bundle);
        assert_eq!((report.uid, report.gid), (0, 0));
        assert_eq!(report.env["GREETING"], "ahoy");

        let null = report.path("/dev/null").unwrap();
        assert_eq!(
            (null.kind, &null.read_write),
            (Kind::CharacterDevice, &Access::Granted)
        );
        let number = null.device.unwrap();
        assert_eq!((number.major, number.minor), (1, 3));

        let programs = report.path("/bin").unwrap().entries.clone().unwrap();
        assert!(programs.contains(&"probe".to_string()), "{programs:?}");
        assert_eq!(
            report.path("/nowhere").unwrap().read,
            Access::refused("ENOENT")
        );
        assert_eq!(report.mount_at("/proc").unwrap().fs_type, "proc");
    }
}

/// The runtime works on the cgroup version in the test's name.
fn the_container_is_on_that_cgroup_version(lab: &Lab) {
    let bundle = Bundle::builder(Rootfs::Busybox).build().unwrap();
    let container = lab.runc.create(&bundle).unwrap();
    let pid = container.pid().unwrap();
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let mentions = |prefix: &str| {
        cgroups
            .lines()
            .any(|line| line.contains(prefix) && line.contains(bundle.id()))
    };
    match lab.runc.view() {
        CgroupView::V1 => assert!(mentions(":devices:"), "{cgroups}"),
        CgroupView::V2 => assert!(mentions("0::") && !mentions(":devices:"), "{cgroups}"),
    }
}

/// Options of the bundle reach the container.
fn a_bundle_contains_what_was_requested(lab: &Lab) {
    let questions = Questions::new().path("/bin").path("/mnt/list");
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), "bound").unwrap();
    let bundle = Bundle::builder(Rootfs::Busybox)
        .args(asking(&questions))
        .user(1000, 1001)
        .readonly()
        .bind(list.path(), "/mnt/list")
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    assert_eq!((report.uid, report.gid), (1000, 1001));
    assert!(report.mount_at("/").unwrap().has("ro"));
    assert!(report.mount_at("/mnt/list").is_some());
}

/// A user namespace maps the container's root to an ordinary user.
fn a_user_namespace_owns_its_files(lab: &Lab) {
    let questions = Questions::new().path("/bin/probe").path("/dev");
    let bundle = Bundle::builder(Rootfs::Busybox)
        .args(asking(&questions))
        .user_namespace()
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    assert_eq!(report.uid, 0);
    assert_eq!(report.path("/bin/probe").unwrap().uid, 0);
    assert_eq!(
        report.path("/bin/probe").unwrap().read_write,
        Access::refused("ETXTBSY")
    );
}

/// The bookkeeping sees a container that is there, and nothing once it is
/// deleted.
fn leftovers_are_seen(lab: &Lab) {
    let bundle = Bundle::builder(Rootfs::Busybox).build().unwrap();
    let container = lab.runc.create(&bundle).unwrap();
    container.start().unwrap();
    let found = leftovers::of(&lab.runc, &bundle).unwrap().join("\n");
    for kind in ["cgroup ", "process ", "runc knows "] {
        assert!(found.contains(kind), "no {kind}in {found}");
    }
    let inside = container
        .exec(&["cat", "/proc/self/status"])
        .unwrap()
        .success()
        .unwrap();
    assert!(inside.stdout.contains("NoNewPrivs"));
    drop(container);
    lab.assert_nothing_left(&bundle);
}

/// Output of a container that was created and started in two steps.
fn output_is_captured_over_create_and_start(lab: &Lab) {
    let bundle = Bundle::builder(Rootfs::Busybox)
        .args(["echo", "hello"])
        .build()
        .unwrap();
    let container = lab.runc.create(&bundle).unwrap();
    container.start().unwrap();
    assert_eq!(container.wait().unwrap(), "hello\n");
}

/// Two containers of one kind share nothing.
fn a_container_does_not_dirty_the_next_one(lab: &Lab) {
    let first = Bundle::builder(Rootfs::Busybox)
        .args(["touch", "/stain"])
        .build()
        .unwrap();
    lab.run(&first);
    assert!(first.in_rootfs("/stain").exists());
    let second = Bundle::builder(Rootfs::Busybox).build().unwrap();
    assert!(!second.in_rootfs("/stain").exists());
}
