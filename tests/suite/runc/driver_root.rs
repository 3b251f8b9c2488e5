//! A driver that keeps its files in a root of its own on the host, as one that
//! is itself run in a container does.

use std::fs;

use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, Loaded};
use harness::rootfs::{Rootfs, make_loader_cache};

use super::{assert_opens, container};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(libraries_are_the_drivers_and_nodes_the_hosts);

const DRIVER: &str = "/run/npu/driver";

/// The host has another version of the library, which the driver is not of.
fn libraries_are_the_drivers_and_nodes_the_hosts(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let root = host.root().join(&DRIVER[1..]);
    let directory = host.libraries();
    let directory = root.join(directory.strip_prefix(host.root()).unwrap());
    fs::create_dir_all(&directory).unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    let [of_host, of_driver] = [host.root(), root.clone()].map(|it| it.join("etc/ld.so.conf"));
    fs::copy(of_host, of_driver).unwrap();
    let library = VendorLibrary::new("dummy-npu", "1.9.9");
    library.install(&directory).unwrap();
    make_loader_cache(&root).unwrap();
    host.write_config(&format!("[class.dummy-npu]\ndriver_root = {DRIVER:?}\n"))
        .unwrap();

    let command = loader::command(&[library.wanted()]);
    let bundle = container(&host, Rootfs::Glibc, "npu-3").args(command);
    let loaded = loader::parse(&lab.run(&bundle.build().unwrap())).unwrap();
    let of_driver = matches!(&loaded[..], [Loaded::Found { answer, .. }] if answer == "1.9.9");
    assert!(of_driver, "{loaded:?}");
    assert_opens(lab, container(&host, Rootfs::Glibc, "npu-3"), 3);
}
