//! Nothing of an image is run or loaded by the hook (CVE-2024-0135, -0136,
//! -0137, CVE-2025-23266).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::compile::{self, Libc};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::{binaries, fingerprint};

use super::volume::{DATA, Volume};
use super::{container, host_with_tools};
use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version};

on_each_cgroup_version!(
    programs_of_the_image_are_not_run,
    libraries_of_the_image_are_not_loaded,
    the_hook_itself_stays_as_it_is,
);

/// The programs that a hook might call.
const PROGRAMS: [&str; 8] = [
    "/sbin/ldconfig",
    "/sbin/ldconfig.real",
    "/usr/sbin/ldconfig",
    "/usr/sbin/ldconfig.real",
    "/usr/bin/mknod",
    "/usr/bin/ln",
    "/usr/bin/npu-tool",
    "/usr/bin/kmod",
];

fn programs_of_the_image_are_not_run(lab: &Lab) {
    let host = host_with_tools();
    for rootfs in [Rootfs::Glibc, Rootfs::GlibcWithoutCache] {
        let volume = Volume::full();
        let bundle = volume.mounted(container(&host, rootfs)).build().unwrap();
        for program in PROGRAMS {
            let file = bundle.in_rootfs(program);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            // Not the busybox behind a link.
            let _ = fs::remove_file(&file);
            let on_host = volume.path().display();
            let script = format!("#!/bin/sh\ntouch {DATA}/ran {on_host}/ran\n");
            fs::write(&file, script).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o4755)).unwrap();
        }
        drop(lab.runc.create(&bundle).unwrap());
        volume.assert_untouched(&format!("{rootfs:?}"));
        lab.assert_nothing_left(&bundle);
    }
}

/// By every variable that makes a dynamic program load something. The image's
/// environment reaches hooks through some engines.
fn libraries_of_the_image_are_not_loaded(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let marker = host.path().join("loaded");
    let definition = format!("-DMARKER=\"{}\"", marker.display());
    let arguments = ["-shared", "-fPIC", &definition];
    let library = compile::program("preloaded.c", Libc::Glibc, &arguments).unwrap();
    let hostile = |variable: &str| {
        let value = match variable {
            "LD_LIBRARY_PATH" | "GCONV_PATH" => library.parent().unwrap(),
            _ => &library,
        };
        let hook = hook(&host).env(variable, &value.display().to_string());
        Bundle::builder(Rootfs::Glibc)
            .hook(STAGE, hook)
            .env(DemoHost::VARIABLE, "npu-3")
    };
    for variable in ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GCONV_PATH"] {
        let bundle = hostile(variable).build().unwrap();
        drop(lab.runc.create(&bundle).unwrap());
        assert!(!marker.exists(), "{variable}");
    }
    // A dynamic program does load it: the attack is one.
    let mut dynamic = Command::new("/bin/true");
    Captured::run(dynamic.env("LD_PRELOAD", &library)).unwrap();
    assert!(marker.exists());
}

/// A container that shares the host's PID namespace searches for the hook's
/// process, to write to its program.
fn the_hook_itself_stays_as_it_is(lab: &Lab) {
    let program = binaries::program("boathook-hook").unwrap();
    let before = fingerprint::of_file(&program).unwrap();
    let host = host_with_tools();
    let script = "for exe in /proc/[0-9]*/exe; do echo attack >> $exe; done 2>/dev/null; echo done";
    let bundle = container(&host, Rootfs::Busybox)
        .args(["/bin/sh", "-c", script])
        .build()
        .unwrap();
    assert_eq!(lab.run(&bundle), "done\n");
    assert_eq!(fingerprint::of_file(&program).unwrap(), before);
}
