//! Containers are of the kind that a test wants, and what stays of them is seen.

use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::leftovers;
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    the_container_is_on_that_cgroup_version,
    a_user_namespace_owns_its_files,
    leftovers_are_seen
);

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

/// A user namespace maps the container's root to an ordinary user.
fn a_user_namespace_owns_its_files(lab: &Lab) {
    let questions = Questions::new().path("/bin/probe").path("/dev");
    let report = lab.look(
        Bundle::builder(Rootfs::Busybox).user_namespace(),
        &questions,
    );
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
    let container = lab.start(&bundle);
    let found = leftovers::find_leftovers(&lab.runc, &bundle)
        .unwrap()
        .join("\n");
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
