//! Containers that run on a kernel without mount_setattr(2), before Linux 5.12: what they get
//! is as restricted as elsewhere, and the host has no mount of it.

use std::fs;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::in_container::node;
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, Loaded};
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;
use harness::surroundings::leave_mount_namespace;
use nix::mount::{MsFlags, mount};

use super::follow::{Follower, assert_follows, followed, may_open, with_device};
use super::{command, done, plain, reads, records};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    a_device_and_its_libraries_are_attached,
    a_device_comes_back,
    directories_with_mounts_below_are_refused,
    nothing_is_attached_without_open_tree,
);

/// The same command where these system calls fail.
fn without(calls: &str, command: &Command) -> Command {
    let program = binaries::program("without-syscalls").unwrap();
    let mut without = Command::new(program);
    without.arg("ENOSYS").arg(calls);
    without.arg(command.get_program()).args(command.get_args());
    without
}

/// Moves this test into a mount namespace whose mounts are shared, as systemd makes them on a
/// host: a mount of a program that forgets to leave the peer group appears here.
fn enter_host_like_namespace() {
    leave_mount_namespace().unwrap();
    let (none, shared) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED);
    mount(none, "/", none, shared, none).unwrap();
}

/// Counts the mounts that this thread sees. It has left the mount namespace that the tests
/// share, so that the mounts of tests that run at the same time are not among them.
fn count_mounts() -> usize {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    mounts.lines().count()
}

fn a_device_and_its_libraries_are_attached(lab: &Lab) {
    enter_host_like_namespace();
    let host = DemoHost::new().unwrap();
    for calls in ["mount_setattr", "mount_setattr,openat2"] {
        let bundle = plain(Rootfs::Glibc).build().unwrap();
        let running = lab.start(&bundle);
        let before = count_mounts();
        let attach = command(lab, &host, &["attach", bundle.id(), "dummy-npu=npu-3"]);
        let attached = Captured::run(&mut without(calls, &attach)).unwrap();
        attached.success().unwrap();
        assert_eq!(count_mounts(), before, "{calls}");

        let library = VendorLibrary::dummy_npu();
        let file = format!("/usr/lib/boathook/lib/{}", library.file_name());
        let asked = Questions::new().path(node(3)).path(&file);
        let report = running.probe(&asked).unwrap();
        assert_eq!(report.path(node(3)).unwrap().read, Access::Granted);
        let written = &report.path(&file).unwrap().write;
        assert_eq!(*written, Access::refused("EROFS"), "{calls}");
        for (path, options) in [
            (node(3), ["ro", "nosuid", "noexec"]),
            (file, ["ro", "nosuid", "nodev"]),
        ] {
            let mount = report.mount_at(&path).unwrap();
            let has = options.iter().all(|option| mount.has_option(option));
            assert!(has && mount.propagation.is_empty(), "{calls}: {mount:?}");
        }
        let mount = report.mount_at("/usr/lib/boathook").unwrap();
        assert!(mount.has_option("ro"), "{calls}: {mount:?}");
        let printed = running
            .output(&loader::command(&[library.wanted()]))
            .unwrap();
        let loaded = loader::parse(&printed).unwrap();
        assert!(matches!(&loaded[..], [Loaded::Found { .. }]), "{loaded:?}");

        done(lab, &host, &["detach", bundle.id()]);
        assert_eq!(reads(&running, 3), None, "{calls}");
        assert!(records(&host).is_empty());
    }
}

fn a_device_comes_back(lab: &Lab) {
    enter_host_like_namespace();
    let host = followed();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let running = lab.start(&bundle);
    let before = count_mounts();
    let follow = command(lab, &host, &["follow", "--verbose"]);
    let _follower = Follower::start_by(&host, without("mount_setattr", &follow));
    for like in [DemoHost::UNLIKE, 3, DemoHost::UNLIKE] {
        assert_follows(&running, &host, 3, &[None, Some(like)]);
    }
    assert!(!may_open(&running, &host, 3));
    let report = running.probe(&Questions::new()).unwrap();
    assert!(report.mount_at(node(3)).unwrap().has_option("ro"));
    assert_eq!(count_mounts(), before);
}

/// They could not be restricted along with it.
fn directories_with_mounts_below_are_refused(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let class = "version = 1\nresource = 'example.com/chip'\nrequest = { env = 'CHIPS' }\n\
        discover = [{ path = '/dev/dummy-npu{index:number}' }]\n\
        [device]\nid = 'chip-{index}'\nindex = '{index}'\nnodes = ['/dev/dummy-npu{index}']\n\
        [[edits]]\ndirectories = ['/opt/chip']\n";
    host.add_class("chips", class).unwrap();
    let below = host.root().join("opt/chip/below");
    fs::create_dir_all(&below).unwrap();
    fs::write(host.root().join("opt/chip/file"), "text").unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let attach = command(lab, &host, &["attach", bundle.id(), "chips=3"]);
    let mut attach = without("mount_setattr", &attach);
    let mount = |arguments: &[&str]| {
        let mut mount = Command::new(arguments[0]);
        mount.args(&arguments[1..]).arg(&below);
        Captured::run(&mut mount).unwrap().success().unwrap();
    };
    mount(&["mount", "-t", "tmpfs", "none"]);
    let refused = Captured::run(&mut attach).unwrap();
    mount(&["umount"]);
    assert!(!refused.status.success());
    let said = &refused.stderr;
    assert!(said.contains("has other mounts below it"), "{said}");
    assert_eq!(reads(&running, 3), None);
    assert!(records(&host).is_empty());

    Captured::run(&mut attach).unwrap().success().unwrap();
    let seen = running.output(&["cat", "/opt/chip/file"]).unwrap();
    assert_eq!(seen.trim(), "text");
    let report = running.probe(&Questions::new()).unwrap();
    assert!(report.mount_at("/opt/chip").unwrap().has_option("ro"));
}

fn nothing_is_attached_without_open_tree(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let attach = command(lab, &host, &["attach", bundle.id(), "dummy-npu=npu-3"]);
    let calls = "mount_setattr,open_tree,move_mount,fsopen,fsmount,fsconfig";
    let refused = Captured::run(&mut without(calls, &attach)).unwrap();
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("takes Linux 5.2"), "{refused:?}");
    assert_eq!(reads(&running, 3), None);
    assert!(records(&host).is_empty());
}
