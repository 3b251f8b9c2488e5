//! Called more than once, or for what the configuration grants already.

use std::os::unix::fs::MetadataExt;

use harness::bundle::{HookCommand, Stage};
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, Loaded};
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use super::{container, node, with_node_of_engine};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    both_stages_do_no_harm,
    what_the_engine_gives_is_not_given_twice,
    a_second_container_is_like_the_first
);

/// As where an engine injects the hook at both stages.
fn both_stages_do_no_harm(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let again = HookCommand::boathook(Stage::Prestart, &host.config_file()).unwrap();
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .hook(Stage::Prestart, again)
        .build()
        .unwrap();
    let running = lab.start(&bundle);

    // A process that joins the container later is in the same cgroup.
    let report = running.probe(&Questions::new().path(node(3))).unwrap();
    assert_eq!(report.path(node(3)).unwrap().read, Access::Granted);
    for path in [&node(3), "/usr/lib/boathook"] {
        let mounts = report.mounts.iter();
        let on_it = mounts.filter(|mount| mount.mount_point.to_str() == Some(path));
        assert_eq!(on_it.count(), 1, "{path}");
    }

    let wanted = loader::command(&[VendorLibrary::dummy_npu().wanted()]);
    let loaded = loader::parse(&running.output(&wanted).unwrap()).unwrap();
    assert!(matches!(&loaded[..], [Loaded::Found { .. }]), "{loaded:?}");
}

/// As with a CDI specification, whose nodes the engine adds before the hook is called.
fn what_the_engine_gives_is_not_given_twice(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let asked = Questions::new().path(node(3)).path(node(DemoHost::UNLIKE));
    let container = container(&host, Rootfs::Busybox, "npu-3,npu-7");
    let report = lab.look(with_node_of_engine(container, &host, 3), &asked);
    for (index, by_the_hook) in [(3, false), (DemoHost::UNLIKE, true)] {
        let seen = report.path(node(index)).unwrap();
        assert_eq!(seen.read, Access::Granted, "{index}");
        let is_the_hosts = seen.inode == std::fs::metadata(host.node(index)).unwrap().ino();
        assert_eq!(is_the_hosts, by_the_hook, "{index}");
    }
}

/// An engine that keeps a container's files starts it again with the files that the
/// hook wrote.
fn a_second_container_is_like_the_first(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let wanted = loader::command(&[VendorLibrary::dummy_npu().wanted()]);
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .args(wanted)
        .build()
        .unwrap();
    let first = loader::parse(&lab.run(&bundle)).unwrap();
    let files = crate::tree::listing(&bundle.rootfs());
    let second = loader::parse(&lab.run(&bundle)).unwrap();
    assert!(matches!(&first[..], [Loaded::Found { .. }]), "{first:?}");
    assert_eq!(first, second);
    assert_eq!(files, crate::tree::listing(&bundle.rootfs()));
}
