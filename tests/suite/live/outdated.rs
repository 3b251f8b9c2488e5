//! After an update of a driver `boathook check` names the containers that have its old files.

use std::fs;

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::demo_host::VendorLibrary;
use harness::rootfs::Rootfs;

use super::follow::with_device;
use super::{boathook, plain};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(containers_with_old_libraries_are_named);

fn containers_with_old_libraries_are_named(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let library = VendorLibrary::dummy_npu();
    let installed = |library: &VendorLibrary| {
        for name in [library.file_name(), library.soname()] {
            fs::remove_file(host.libraries().join(name)).ok();
        }
        host.install(std::slice::from_ref(library)).unwrap();
    };
    let named = |bundle: &Bundle, of: &[&str]| {
        let arguments = [&["check", "--json"], of].concat();
        let checked = boathook(lab, &host, &arguments);
        let checked: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
        let findings = checked["findings"].as_array().unwrap();
        let is_its = |it: &&serde_json::Value| {
            let text = it["text"].as_str().unwrap();
            it["subject"] == "container" && text.starts_with(bundle.id())
        };
        let mut findings = findings.iter().filter(is_its);
        let found = findings.next().map(|it| {
            assert_eq!(it["verdict"], "warning");
            assert!(it["fix"].as_str().unwrap().starts_with("restart it"));
            it["text"].as_str().unwrap().to_owned()
        });
        assert!(findings.next().is_none());
        found
    };
    let bundles = [with_device(&host, "npu-3"), with_device(&host, "npu-4")];
    let [old, new] = bundles.map(|bundle| bundle.build().unwrap());
    let nothing = plain(Rootfs::Busybox).build().unwrap();
    let _old = lab.start(&old);
    let _nothing = lab.start(&nothing);
    assert_eq!(named(&old, &[]), None);

    // Another file of the same name.
    installed(&library);
    let text = named(&old, &[]).unwrap();
    let words = "other files of the driver than the host has now: libdummy-npu.so.1.2.3; \
                 its libraries are of the host's version";
    assert!(text.ends_with(words), "{text}");
    assert_eq!(named(&nothing, &[]), None);
    let _new = lab.start(&new);
    assert_eq!(named(&new, &[]), None);
    assert!(named(&old, &["dummy-npu"]).is_some());
    host.add_class("chips", CLASS).unwrap();
    assert_eq!(named(&old, &["chips"]), None);

    // And of another one.
    fs::remove_file(host.libraries().join(library.file_name())).unwrap();
    installed(&VendorLibrary::new("dummy-npu", "1.2.4"));
    for bundle in [&old, &new] {
        let text = named(bundle, &[]).unwrap();
        let words = ": libdummy-npu.so.1.2.4; its libraries are of another version than the \
                     host's, and may not fit the kernel's module";
        assert!(text.ends_with(words), "{text}");
    }
}

pub(super) const CLASS: &str = "version = 1\nresource = 'example.com/chip'\n\
    request = { env = 'CHIPS' }\ndiscover = [{ count = 1 }]\n\
    [device]\nid = 'chip-{index}'\nnodes = ['/dev/dummy-npu{index}']\n";
