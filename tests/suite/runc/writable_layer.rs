//! Files that stay in the image's writable layer, where a commit of the container
//! would find it.

use std::collections::BTreeSet;
use std::fs;

use harness::binaries;
use harness::bundle::{Bundle, HookCommand};
use harness::demo_host::DemoHost;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;

use super::container;
use crate::lab::{Lab, STAGE, on_each_cgroup_version};
use crate::tree::listing;

on_each_cgroup_version!(little_stays, little_of_a_gpu_stays);

/// Directories to mount on, what the loader reads, and a link to the library; no file that is
/// named like a library, a program or a device.
fn little_stays(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let with_cache = "/etc/ld.so.cache /etc/ld.so.conf.d/00-boathook.conf /usr/lib/boathook \
        /usr/lib/x86_64-linux-gnu/libdummy-npu.so.1";
    let without_cache = "/etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d \
        /etc/ld.so.conf.d/00-boathook.conf /usr/lib/boathook \
        /usr/lib/x86_64-linux-gnu/libdummy-npu.so.1";
    for (rootfs, expected) in [
        (
            Rootfs::Busybox,
            "/usr/lib/boathook /usr/lib/libdummy-npu.so.1",
        ),
        (Rootfs::Glibc, with_cache),
        (Rootfs::GlibcWithoutCache, without_cache),
        (
            Rootfs::Empty,
            "/usr /usr/lib /usr/lib/boathook /usr/lib/libdummy-npu.so.1",
        ),
    ] {
        // Both run once, as the runtime makes mount points of its own.
        let with = container(&host, rootfs, "npu-3").build().unwrap();
        let without = Bundle::builder(rootfs).build().unwrap();
        drop(lab.runc.create(&with).unwrap());
        drop(lab.runc.create(&without).unwrap());
        let changed = Vec::from_iter(changes(&without, &with));
        assert_eq!(changed.join(" "), expected, "{rootfs:?}");
    }
}

/// Two pages compare the number of files with that of the vendor's stack.
fn assert_pages_name(count: usize) {
    for (page, expected) in [
        ("README.md", format!("| 94, or 31 (legacy) | {count} |")),
        (
            "docs/performance.md",
            format!("in mode legacy 31, Boathook {count}\n"),
        ),
    ] {
        let text = fs::read_to_string(binaries::source_tree().join(page)).unwrap();
        assert!(text.contains(&expected), "{page} lacks {expected:?}");
    }
}

/// With all capabilities, on hosts with the drivers 550 and 580. The vendor's stack leaves 31 or 94
/// files (2026-11-27, driver 550). The recording of 580 has the X server's files where each of three
/// distributions has them, and a host where one has them.
fn little_of_a_gpu_stays(lab: &Lab) {
    for (recorded, expected) in [("debian-550", 24), ("h200", 31)] {
        let testdata = binaries::source_tree().join("device-class/testdata/nvidia-gpu");
        let recording = fs::read_to_string(testdata.join(recorded).join("host.txt")).unwrap();
        let elsewhere = ["/usr/lib64/xorg", "/usr/lib/x86_64-linux-gnu/nvidia/xorg"];
        let lines = recording.lines();
        let lines = lines
            .filter(|line| recorded != "h200" || !elsewhere.iter().any(|path| line.contains(path)));
        let recording: String = lines.map(|line| format!("{line}\n")).collect();
        let host = RecordedHost::new("nvidia-gpu", &recording).unwrap();
        let with = Bundle::builder(Rootfs::Glibc)
            .hook(
                STAGE,
                HookCommand::boathook(STAGE, &host.config_file()).unwrap(),
            )
            .env("NVIDIA_VISIBLE_DEVICES", "0")
            .env("NVIDIA_DRIVER_CAPABILITIES", "all")
            .build()
            .unwrap();
        let without = Bundle::builder(Rootfs::Glibc).build().unwrap();
        drop(lab.runc.create(&with).unwrap());
        drop(lab.runc.create(&without).unwrap());
        let mut changed = changes(&without, &with);
        // Directories are not counted: an image usually has them.
        changed.retain(|path| !with.in_rootfs(path).is_dir());
        assert_eq!(changed.len(), expected, "{recorded}: {changed:?}");
        if recorded == "debian-550" {
            assert_pages_name(changed.len());
        }
    }
}

/// The paths that are new or different in `after`.
fn changes(before: &Bundle, after: &Bundle) -> BTreeSet<String> {
    let before: BTreeSet<_> = listing(&before.rootfs()).into_iter().collect();
    let after = listing(&after.rootfs())
        .into_iter()
        .filter(|line| !before.contains(line));
    after
        .map(|line| line.split(' ').next().unwrap_or_default().to_string())
        .collect()
}
