//! The vendor's libraries are found by the image's own loader.

use std::fs;

use harness::bundle::Bundle;
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::fingerprint;
use harness::loader::{self, Loaded};
use harness::probe::{Access, Questions};
use harness::rootfs::{Rootfs, make_loader_cache};

use super::container;
use crate::lab::{Lab, images_with_a_loader, on_each_cgroup_version};
use crate::said::assert_says;
use crate::tree::listing;

on_each_cgroup_version!(
    every_loader_finds_them,
    they_are_the_hosts_own_and_read_only,
    they_stay_when_the_container_runs_ldconfig,
    the_images_own_libraries_stay,
    a_stale_library_of_the_image_gives_way,
    the_hosts_own_loader_is_left_alone
);

const DIRECTORY: &str = "/usr/lib/boathook/lib";

/// With a cache, without one, and with a C library that does not use one.
fn every_loader_finds_them(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for rootfs in images_with_a_loader() {
        let bundle = container(&host, rootfs, "npu-3")
            .args(load_command())
            .build()
            .unwrap();
        let loaded = loader::parse(&lab.run(&bundle)).unwrap();
        assert_eq!(loaded, [the_vendors()], "{rootfs:?}");
    }
}

fn they_are_the_hosts_own_and_read_only(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let library = VendorLibrary::dummy_npu();
    let file = format!("{DIRECTORY}/{}", library.file_name());
    let link = format!("{DIRECTORY}/{}", library.soname());
    let questions = Questions::new().path(&file).path(&link).path(DIRECTORY);
    let report = lab.look(container(&host, Rootfs::Glibc, "npu-3"), &questions);

    let seen = report.path(&file).unwrap();
    let own = fingerprint::of_file(&host.libraries().join(library.file_name())).unwrap();
    assert_eq!(seen.fingerprint, Some(own));
    assert_eq!(seen.write, Access::refused("EROFS"));
    let mount = report.mount_at(&file).unwrap();
    for option in ["ro", "nosuid", "nodev"] {
        assert!(mount.has_option(option), "{mount:?}");
    }
    assert!(mount.propagation.is_empty(), "{mount:?}");

    let target = report.path(&link).unwrap().link_target.clone().unwrap();
    assert_eq!(target.to_str(), Some(&*library.file_name()));
    let names = report.path(DIRECTORY).unwrap().entries.clone().unwrap();
    assert_eq!(names, [library.soname(), library.file_name()]);
    assert!(
        report
            .mount_at("/usr/lib/boathook")
            .unwrap()
            .has_option("ro")
    );
}

fn they_stay_when_the_container_runs_ldconfig(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = container(&host, Rootfs::Glibc, "npu-3").build().unwrap();
    let printed = lab.exec_after_ldconfig(&bundle, &load_command());
    assert_eq!(loader::parse(&printed).unwrap(), [the_vendors()]);
}

/// The cache is merged, not replaced.
fn the_images_own_libraries_stay(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let own = VendorLibrary::new("image-own", "2.0.0");
    let wanted = [own.wanted(), VendorLibrary::dummy_npu().wanted()];
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .args(loader::command(&wanted))
        .build()
        .unwrap();
    add_to_image(&bundle, &own);
    let loaded = loader::parse(&lab.run(&bundle)).unwrap();
    let expected = Loaded::Found {
        soname: own.soname(),
        path: format!("/opt/own/{}", own.soname()).into(),
        answer: "2.0.0".to_string(),
    };
    assert_eq!(loaded, [expected, the_vendors()]);
}

/// An image built with another version of the driver than the host has.
fn a_stale_library_of_the_image_gives_way(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .args(load_command())
        .build()
        .unwrap();
    add_to_image(&bundle, &VendorLibrary::new("dummy-npu", "1.0.0"));
    assert_eq!(loader::parse(&lab.run(&bundle)).unwrap(), [the_vendors()]);
}

fn load_command() -> Vec<String> {
    loader::command(&[VendorLibrary::dummy_npu().wanted()])
}

fn the_vendors() -> Loaded {
    let library = VendorLibrary::dummy_npu();
    Loaded::Found {
        soname: library.soname(),
        path: format!("{DIRECTORY}/{}", library.soname()).into(),
        answer: library.version,
    }
}

/// Adds a library to the image and to its loader's cache, as a package does.
fn add_to_image(bundle: &Bundle, library: &VendorLibrary) {
    let directory = bundle.in_rootfs("/opt/own");
    fs::create_dir_all(&directory).unwrap();
    library.install(&directory).unwrap();
    fs::write(bundle.in_rootfs("/etc/ld.so.conf.d/own.conf"), "/opt/own\n").unwrap();
    make_loader_cache(&bundle.rootfs()).unwrap();
}

/// A container may have the host's /etc as a volume: what it says there, every
/// program of the host would believe.
fn the_hosts_own_loader_is_left_alone(lab: &Lab) {
    for (option, reason) in [
        ("rw", "/etc/ld.so.cache: it is on a volume"),
        ("ro", "/etc/ld.so.cache: it is on a volume"),
    ] {
        let host = DemoHost::new().unwrap();
        let etc = host.root().join("etc");
        make_loader_cache(&host.root()).unwrap();
        let before = listing(&etc);
        let bundle = container(&host, Rootfs::Glibc, "npu-3")
            .mount("bind", &etc, "/etc", &["rbind", option])
            .env("LD_LIBRARY_PATH", DIRECTORY)
            .args(load_command())
            .build()
            .unwrap();
        let loaded = loader::parse(&lab.run(&bundle)).unwrap();
        assert_eq!(loaded, [the_vendors()], "{option}");
        assert_eq!(listing(&etc), before, "{option}");
        let remedy = format!("set LD_LIBRARY_PATH={DIRECTORY}");
        assert_says(&host.log(), &[reason, &remedy]);
    }
}
