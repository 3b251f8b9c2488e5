//! After an update of a driver `boathook refresh` gives a container that runs its files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use harness::bundle::Bundle;
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::patience::wait_until;
use harness::probe::{Access, Kind};
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::follow::{Follower, assert_follows, with_device};
use super::outdated::CLASS as CHIPS;
use super::{boathook, done, plain, reads, records};
use crate::lab::{Lab, images_with_a_loader, on_each_cgroup_version, requesting};
use crate::said::assert_says;

on_each_cgroup_version!(
    programs_that_start_later_find_the_new_library,
    with_the_last_attached_device_only_what_is_for_it_goes,
    a_refreshed_file_stays_when_a_device_comes_back,
    a_directory_of_the_new_version_is_given,
    what_cannot_be_refreshed_is_left_as_it_is,
);

const DIRECTORY: &str = "/usr/lib/boathook/lib";
const SONAME: &str = "libdummy-npu.so.1";

/// The version that the host has at first, and a later one.
const OLD: &str = "libdummy-npu.so.1.2.3";
const NEW: &str = "libdummy-npu.so.1.2.4";

/// The library is replaced by one of another version, as a package does it.
pub(crate) fn update(host: &DemoHost) {
    remove(host);
    let library = VendorLibrary::new("dummy-npu", "1.2.4");
    host.install(&[library]).unwrap();
}

fn remove(host: &DemoHost) {
    for name in [OLD, SONAME] {
        fs::remove_file(host.libraries().join(name)).unwrap();
    }
}

/// The inode of a library in the container, and of what its directory has for the old version.
fn libraries(container: &Container<'_>) -> [Option<u64>; 2] {
    [SONAME, OLD].map(|name| {
        let seen = container.look(format!("{DIRECTORY}/{name}")).unwrap();
        (seen.kind != Kind::Missing).then_some(seen.inode)
    })
}

fn inode(host: &DemoHost, name: &str) -> Option<u64> {
    let found = fs::metadata(host.libraries().join(name));
    found.ok().map(|it| it.ino())
}

fn outdated(lab: &Lab, host: &DemoHost, bundle: &Bundle) -> bool {
    let checked = boathook(lab, host, &["check"]);
    checked.stdout.contains(bundle.id())
}

fn programs_that_start_later_find_the_new_library(lab: &Lab) {
    for _ in images_with_a_loader() {
        let host = DemoHost::new().unwrap();
        let given = with_device(&host, "npu-3").build().unwrap();
        let attached = plain(Rootfs::Busybox).build().unwrap();
        let [given, attached] = [&given, &attached].map(|bundle| (bundle, lab.start(bundle)));
        done(lab, &host, &["attach", attached.0.id(), "dummy-npu=4"]);
        let old = inode(&host, OLD);
        update(&host);
        let new = inode(&host, NEW);
        for ((bundle, container), device) in [(&given, 3), (&attached, 4)] {
            let refresh = |more: &[&str]| {
                let arguments = [&["refresh", bundle.id()], more].concat();
                done(lab, &host, &arguments)
            };
            assert_eq!(libraries(container), [old, old]);
            assert!(outdated(lab, &host, bundle));

            let plan = refresh(&["--dry-run"]);
            assert!(plan.contains(NEW) && !plan.contains("allow"), "{plan}");
            assert_eq!(libraries(container), [old, old]);

            let text = refresh(&[]);
            assert!(text.contains("keep the old ones"), "{text}");
            assert_eq!(libraries(container), [new, None]);
            assert!(!outdated(lab, &host, bundle));
            assert_eq!(reads(container, device), Some(Access::Granted));

            let text = refresh(&[]);
            assert_says(&text, &["has no file that the host has replaced"]);
            let seen = done(lab, &host, &["doctor", "--container", bundle.id()]);
            assert!(seen.contains(&format!("npu-{device}")), "{seen}");
        }
        done(lab, &host, &["detach", attached.0.id()]);
        assert_eq!(libraries(&attached.1), [None, None]);
        assert_eq!(records(&host), [given.0.id()]);
    }
}

/// A device that the hook gave stays, and with it the new library.
fn with_the_last_attached_device_only_what_is_for_it_goes(lab: &Lab) {
    for is_attached_first in [true, false] {
        let host = DemoHost::new().unwrap();
        let bundle = with_device(&host, "npu-3").build().unwrap();
        let container = lab.start(&bundle);
        let attach = || done(lab, &host, &["attach", bundle.id(), "dummy-npu=4"]);
        if is_attached_first {
            attach();
        }
        update(&host);
        done(lab, &host, &["refresh", bundle.id()]);
        if !is_attached_first {
            attach();
        }
        assert_eq!(reads(&container, 4), Some(Access::Granted));
        done(lab, &host, &["detach", bundle.id()]);
        assert_eq!(reads(&container, 4), None);
        assert_eq!(reads(&container, 3), Some(Access::Granted));
        assert_eq!(libraries(&container), [inode(&host, NEW), None]);
    }
}

/// One that the image lacks and the driver had not before: a link, as some devices' names are.
fn a_refreshed_file_stays_when_a_device_comes_back(lab: &Lab) {
    const FILE: &str = "/etc/chip.conf";
    let host = DemoHost::new().unwrap();
    let edits = format!("[[edits]]\noptional = true\nfiles = ['{FILE}']\n");
    let class = CHIPS.replace("npu{index}", "npu3") + &edits;
    host.add_class("chips", &class).unwrap();
    host.write_config("[class.chips]\nfollow = true\n").unwrap();
    let bundle = requesting(&host, Rootfs::Busybox, "CHIPS", "chip-0");
    let bundle = bundle.build().unwrap();
    let container = lab.start(&bundle);
    let _follower = Follower::start(lab, &host);
    host.add_file(FILE, "new").unwrap();
    done(lab, &host, &["refresh", bundle.id()]);
    for _ in 0..2 {
        assert_follows(&container, &host, 3, &[None, Some(DemoHost::UNLIKE)]);
        assert_eq!(container.output(&["cat", FILE]).unwrap(), "new");
    }
}

/// A directory with the version in its path, as that of a driver's firmware: the container has none
/// of that path.
fn a_directory_of_the_new_version_is_given(lab: &Lab) {
    const DIRECTORY: &str = "/lib/firmware/acme";
    for is_read_only in [false, true] {
        let host = DemoHost::new().unwrap();
        let more = format!(
            "[[attributes]]\nname = 'driver'\nfile = '/sys/module/acme/version'\n\
             [[edits]]\ndirectories = ['{DIRECTORY}/{{driver}}']\n"
        );
        let class = CHIPS.replace("npu{index}", "npu3") + &more;
        host.add_class("chips", &class).unwrap();
        let install = |version: &str| {
            fs::remove_dir_all(host.root().join(&DIRECTORY[1..])).ok();
            host.add_file("/sys/module/acme/version", version).unwrap();
            let file = format!("{DIRECTORY}/{version}/gsp.bin");
            host.add_file(&file, version).unwrap();
        };
        let bundle = requesting(&host, Rootfs::Busybox, "CHIPS", "chip-0");
        let bundle = if is_read_only {
            bundle.readonly()
        } else {
            bundle
        };
        let bundle = bundle.build().unwrap();
        install("1");
        let container = lab.start(&bundle);
        install("2");
        let refreshed = boathook(lab, &host, &["refresh", bundle.id()]);
        assert!(refreshed.status.success(), "{refreshed:?}");
        let read = container.output(&["cat", &format!("{DIRECTORY}/2/gsp.bin")]);
        if is_read_only {
            read.unwrap_err();
            let words = format!("{DIRECTORY}/2 cannot be made, because");
            assert!(refreshed.stderr.contains(&words), "{refreshed:?}");
            continue;
        }
        assert_eq!(read.unwrap(), "2");
        let doctor = done(lab, &host, &["doctor", "--container", bundle.id()]);
        assert!(doctor.contains("no fault found"), "{doctor}");
        let text = done(lab, &host, &["refresh", bundle.id()]);
        assert_says(&text, &["has no file that the host has replaced"]);
    }
}

fn what_cannot_be_refreshed_is_left_as_it_is(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let container = lab.start(&bundle);
    let nothing = plain(Rootfs::Busybox).build().unwrap();
    let _nothing = lab.start(&nothing);
    let ended = plain(Rootfs::Busybox).args(["/bin/true"]).build().unwrap();
    let running = lab.start(&ended);
    assert!(wait_until(|| running.pid().unwrap() == 0));
    let old = inode(&host, OLD);
    remove(&host);
    for (container, words) in [(ended.id(), ended.id()), ("nobody", "no container nobody")] {
        let refused = boathook(lab, &host, &["refresh", container]);
        assert!(!refused.status.success(), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    // A library that the host has no more is not taken away.
    for id in [bundle.id(), nothing.id()] {
        let text = done(lab, &host, &["refresh", id]);
        assert_says(&text, &["has no file that the host has replaced"]);
    }
    assert_eq!(libraries(&container), [old, old]);
    assert!(records(&host).is_empty());
}
