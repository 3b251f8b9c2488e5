//! Files of the host for which the container has no place.

use std::fs;

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::scratch;

use super::container;
use crate::lab::{Lab, on_each_cgroup_version};
use crate::said::assert_says;

on_each_cgroup_version!(
    a_file_without_a_place_is_a_warning_if_it_is_optional,
    a_directory_without_a_place_on_a_volume_is_a_warning_if_it_is_optional,
);

const CLASS: &str = "version = 1\nresource = 'dummy.com/chip'\nrequest = { env = 'CHIPS' }\n\
    discover = [{ count = 1 }]\ndevice = { id = 'chip-{index}' }\n\
    [[edits]]\nfiles = [{ path = '/etc/chip.d/a.json', optional = OPTIONAL }, '/etc/b.json']\n";

/// Docker makes a directory for a bind mount of a file that the host lacks, such as
/// `./a.json:/etc/chip.d/a.json`.
fn a_file_without_a_place_is_a_warning_if_it_is_optional(lab: &Lab) {
    for (is_optional, directory, file) in [
        (true, "etc/chip.d/a.json", None),
        (true, "etc", Some("etc/chip.d")),
        (false, "etc/chip.d/a.json", None),
    ] {
        let host = DemoHost::new().unwrap();
        let class = CLASS.replace("OPTIONAL", &is_optional.to_string());
        host.add_class("chip", &class).unwrap();
        host.add_file("/etc/chip.d/a.json", "{}").unwrap();
        host.add_file("/etc/b.json", "b").unwrap();
        let bundle = container(&host, Rootfs::Busybox, "npu-3").env("CHIPS", "all");
        let bundle: Bundle = bundle.args(["cat", "/etc/b.json"]).build().unwrap();
        fs::create_dir_all(bundle.rootfs().join(directory)).unwrap();
        if let Some(file) = file {
            fs::write(bundle.rootfs().join(file), "").unwrap();
        }
        let ran = lab.runc.run(&bundle).unwrap();
        assert_eq!(ran.status.success(), is_optional, "{}", ran.stderr);
        let words = ["chip", "/etc/chip.d"];
        if is_optional {
            assert_eq!(ran.stdout, "b");
            assert_says(
                &host.log(),
                &[&words[..], &["starts without this file"]].concat(),
            );
        } else {
            assert_says(&ran.stderr, &[&words[..], &["is a directory"]].concat());
        }
    }
}

const FIRMWARE_CLASS: &str = "version = 1\nresource = 'dummy.com/chip'\nrequest = { env = 'CHIPS' }\n\
    discover = [{ count = 1 }]\ndevice = { id = 'chip-{index}' }\n\
    [[edits]]\ndirectories = [{ path = '/lib/fw/chip', optional = OPTIONAL }]\n\
    masks = [{ path = '/etc/profiles/chip.d', texts = [\
    { path = '/etc/profiles/chip.d/chip.json', text = 'BITS', bit = '{index}' }] }]\n";

/// The user has volumes at the parents of these directories, such as `/lib/firmware`.
fn a_directory_without_a_place_on_a_volume_is_a_warning_if_it_is_optional(lab: &Lab) {
    for is_optional in [true, false] {
        let host = DemoHost::new().unwrap();
        let class = FIRMWARE_CLASS.replace("OPTIONAL", &is_optional.to_string());
        host.add_class("chip", &class).unwrap();
        host.add_file("/lib/fw/chip/a", "").unwrap();
        let volume = scratch::directory("volume").unwrap();
        let bundle = container(&host, Rootfs::Busybox, "npu-3").env("CHIPS", "all");
        let bundle = bundle.bind(volume.path(), "/etc/profiles");
        let bundle = bundle.bind(volume.path(), "/lib/fw");
        let bundle: Bundle = bundle
            .args(["ls", "/lib/fw", "/etc/profiles"])
            .build()
            .unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        assert_eq!(ran.status.success(), is_optional, "{}", ran.stderr);
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
        if is_optional {
            let words = ["/lib/fw/chip", "starts without this file"];
            assert_says(&host.log(), &words);
            let words = ["/etc/profiles/chip.d", "starts without this file"];
            assert_says(&host.log(), &words);
        } else {
            assert_says(&ran.stderr, &["/lib/fw/chip", "on a volume"]);
        }
    }
}
