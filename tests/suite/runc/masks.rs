//! Directories of which a container sees only its own entries, such as what
//! a driver has in /proc about all of its devices.

use std::fs;
use std::os::unix::fs::symlink;

use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::demo_host::HostDirectory;
use harness::mountinfo;
use harness::probe::{Access, Kind, Questions, Report};
use harness::rootfs::Rootfs;

use crate::lab::{Lab, STAGE, asking, hook, on_each_cgroup_version, requesting};
use crate::tree::listing;

on_each_cgroup_version!(
    only_the_devices_own_files_are_seen,
    without_newer_calls_no_more_is_seen,
    a_shared_root_leaks_no_mask,
    a_second_call_covers_nothing_again,
    where_nothing_is_nothing_is_made,
    a_link_in_the_place_is_refused,
    the_kernels_lists_have_links_to_the_own_devices_alone
);

const CLASS: &str = r#"
    version = 1
    resource = "example.com/chip"
    [request]
    env = "CHIP_VISIBLE_DEVICES"
    [[discover]]
    path = "/proc/driver/chips/{index:number}"
    [device]
    id = "chip-{index}"
    index = "{index}"
    unmask = ["/proc/driver/chips/{index}"]
    [[edits]]
    masks = [{ path = "/proc/driver/chips", copies = [
      "/proc/driver/chips/version",
      "/proc/driver/chips/params",
      "/proc/driver/chips/registry",
    ], set = { Modify = "0" } }]
"#;

const PLACE: &str = "/proc/driver/chips";

/// A host whose driver lists two chips.
fn host(class: &str) -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    host.add_class("chips", class).unwrap();
    for (path, text) in [
        ("version", "1.0\n"),
        ("params", "Modify: 1\nMode: 438\n"),
        ("secret", "of the host\n"),
        ("0/info", "serial 0\n"),
        ("1/info", "serial 1\n"),
    ] {
        host.add_file(&format!("{PLACE}/{path}"), text).unwrap();
    }
    host
}

/// A container whose /proc has the driver's directory, and that gets chip 1.
fn container(host: &HostDirectory, hook: HookCommand) -> BundleBuilder {
    let driver = HookCommand::binding(&host.root().join("proc/driver"), "/proc/driver");
    Bundle::builder(Rootfs::Busybox)
        .hook(STAGE, driver)
        .hook(STAGE, hook)
        .env("CHIP_VISIBLE_DEVICES", "1")
        .args(asking(&questions()))
}

fn questions() -> Questions {
    ["", "/version", "/params", "/secret", "/0", "/1", "/1/info"]
        .iter()
        .fold(Questions::new(), |questions, below| {
            questions.path(format!("{PLACE}{below}"))
        })
}

fn assert_masked(report: &Report) {
    let at = |below: &str| report.path(format!("{PLACE}{below}")).unwrap();
    let entries = at("").entries.as_deref().unwrap();
    assert_eq!(entries, ["1", "params", "version"]);
    assert_eq!(at("/version").text.as_deref(), Some("1.0\n"));
    assert_eq!(
        at("/params").text.as_deref(),
        Some("Modify: 0\nMode: 438\n")
    );
    assert_eq!(at("/1/info").text.as_deref(), Some("serial 1\n"));
    for hidden in ["/secret", "/0"] {
        assert_eq!(at(hidden).kind, Kind::Missing, "{hidden}");
    }
    for read_only in ["/params", "/1/info"] {
        assert_ne!(at(read_only).write, Access::Granted, "{read_only}");
    }
    for place in [PLACE.to_owned(), format!("{PLACE}/1")] {
        let mount = report.mount_at(place).unwrap();
        let options = ["ro", "nosuid", "nodev"];
        assert!(options.iter().all(|has| mount.has_option(has)), "{mount:?}");
    }
}

fn only_the_devices_own_files_are_seen(lab: &Lab) {
    let host = host(CLASS);
    let container = container(&host, hook(&host));
    for container in [container.clone(), container.user_namespace()] {
        assert_masked(&lab.probe(&container.build().unwrap()));
    }
    // The host's own directory is as it was.
    let params = fs::read_to_string(host.root().join("proc/driver/chips/params")).unwrap();
    assert_eq!(params, "Modify: 1\nMode: 438\n");
}

fn without_newer_calls_no_more_is_seen(lab: &Lab) {
    let host = host(CLASS);
    for calls in [
        ["mount_setattr", "openat2"].as_slice(),
        &["open_tree", "move_mount", "fsopen", "fsmount", "fsconfig"],
    ] {
        let hook = hook(&host).without_syscalls("ENOSYS", calls).unwrap();
        let bundle = container(&host, hook).build().unwrap();
        assert_masked(&lab.probe(&bundle));
    }
}

fn a_shared_root_leaks_no_mask(lab: &Lab) {
    let host = host(CLASS);
    let bundle = container(&host, hook(&host))
        .rootfs_propagation("shared")
        .build()
        .unwrap();
    let running = lab.runc.create(&bundle).unwrap();
    let mounts = mountinfo::of_self().unwrap();
    let leaked = mounts
        .iter()
        .filter(|mount| mount.mount_point.ends_with(&PLACE[1..]));
    assert_eq!(leaked.count(), 0);
    drop(running);
    lab.assert_nothing_left(&bundle);
}

fn a_second_call_covers_nothing_again(lab: &Lab) {
    let host = host(CLASS);
    let bundle = container(&host, hook(&host))
        .hook(STAGE, hook(&host))
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    assert_masked(&report);
    let covering = report
        .mounts
        .iter()
        .filter(|mount| mount.mount_point.to_str() == Some(PLACE));
    assert_eq!(covering.count(), 1);
}

/// A container without the driver's directory, as one without /proc.
fn where_nothing_is_nothing_is_made(lab: &Lab) {
    let host = host(CLASS);
    let container = requesting(&host, Rootfs::Busybox, "CHIP_VISIBLE_DEVICES", "1");
    let report = lab.look(container, &questions());
    assert_eq!(report.path(PLACE).unwrap().kind, Kind::Missing);
    assert!(report.mount_at(PLACE).is_none());
}

/// A hostile image, and a class that masks a directory outside of /proc.
fn a_link_in_the_place_is_refused(lab: &Lab) {
    let host = host(
        r#"
        version = 1
        resource = "example.com/chip"
        request = { env = "CHIP_VISIBLE_DEVICES" }
        discover = [{ count = 1 }]
        device = { id = "chip-{index}" }
        edits = [{ masks = [{ path = "/opt/chips" }] }]
    "#,
    );
    let victim = harness::scratch::directory("victim").unwrap();
    fs::write(victim.path().join("file"), "the host's own").unwrap();
    let before = listing(victim.path());
    let container = requesting(&host, Rootfs::Busybox, "CHIP_VISIBLE_DEVICES", "all");
    let bundle = container.args(["true"]).build().unwrap();
    fs::create_dir_all(bundle.in_rootfs("/opt")).unwrap();
    symlink(victim.path(), bundle.in_rootfs("/opt/chips")).unwrap();
    let ran = lab.runc.run(&bundle).unwrap();
    assert!(!ran.status.success());
    assert!(ran.stderr.contains("/opt/chips"), "{}", ran.stderr);
    assert_eq!(listing(victim.path()), before);
    lab.assert_nothing_left(&bundle);
}

/// Also in a container that could remove the mask: the directories of all devices stay visible.
fn the_kernels_lists_have_links_to_the_own_devices_alone(lab: &Lab) {
    const LISTED: &str = "version = 1\nresource = 'example.com/card'\nrequest = { env = 'CARDS' }\n\
        [[discover]]\npath = '/sys/class/cards/card{index:number}'\n\
        [device]\nid = 'card-{index}'\nunmask = ['/sys/class/cards/card{index}']\n\
        [[edits]]\nmasks = [{ path = '/sys/class/cards' }]\n";
    let host = HostDirectory::new().unwrap();
    host.add_class("cards", LISTED).unwrap();
    fs::create_dir_all(host.root().join("sys/class/cards")).unwrap();
    for card in ["card0", "card1"] {
        let directory = format!("/sys/devices/pci/{card}/cards/{card}");
        host.add_file(&format!("{directory}/serial"), card).unwrap();
        host.add_file(&format!("/sys/devices/pci/{card}/vendor"), "0x1234")
            .unwrap();
        let device = host.root().join(&directory[1..]).join("device");
        symlink(format!("../../../{card}"), device).unwrap();
        let target = format!("../../devices/pci/{card}/cards/{card}");
        symlink(target, host.root().join("sys/class/cards").join(card)).unwrap();
    }
    // A link in the device's own directory leads where it leads on the host.
    let script = "cd /sys/class/cards; echo $(ls) $(readlink card1) $(cat card1/device/vendor)";
    let wanted = "card1 ../../devices/pci/card1/cards/card1 0x1234\n";
    let sys = HookCommand::binding(&host.root().join("sys"), "/sys");
    let container = Bundle::builder(Rootfs::Busybox)
        .hook(STAGE, sys)
        .hook(STAGE, hook(&host))
        .hook(STAGE, hook(&host))
        .env("CARDS", "card-1")
        .args(["/bin/sh", "-c", script]);
    for container in [container.clone(), container.user_namespace().sys_admin()] {
        let bundle = container.build().unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        assert_eq!(ran.stdout, wanted, "{ran:?}");
        lab.assert_nothing_left(&bundle);
    }
}
