//! Images and volumes with other things than files where the hook writes.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use harness::bundle::Bundle;
use harness::probe::Questions;
use harness::rootfs::Rootfs;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;

use super::outcome::{Outcome, assert_whole};
use super::volume::{Volume, put_link};
use super::{container, host_with_tools};
use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(
    a_link_at_a_programs_path_stops_nothing,
    a_read_only_volume_stops_nothing,
    special_files_stop_nothing_and_block_nothing,
);

/// How long a container with a special file may take, under load.
const PATIENCE: Duration = Duration::from_secs(20);

fn all_asked(builder: harness::bundle::BundleBuilder) -> harness::bundle::BundleBuilder {
    let paths = [
        "/dev/dummy-npu3",
        "/usr/lib/boathook",
        "/usr/lib/boathook/lib/libdummy-npu.so.1",
        "/usr/bin/npu-tool",
        "/etc/npu.conf",
        "/var/lib/npu/table",
    ];
    let questions = paths.into_iter().fold(Questions::new(), Questions::path);
    builder.args(asking(&questions))
}

/// As busybox's applets are, and Debian's alternatives.
fn a_link_at_a_programs_path_stops_nothing(lab: &Lab) {
    let host = host_with_tools();
    for target in [
        "busybox",
        "/bin/busybox",
        "/etc/alternatives/npu-tool",
        "nothing",
    ] {
        let builder = all_asked(container(&host, Rootfs::Busybox));
        let bundle = builder.build().unwrap();
        put_link(&bundle, "/usr/bin/npu-tool", target);
        put_link(&bundle, "/etc/alternatives/npu-tool", "/bin/busybox");
        let busybox = fs::read(bundle.in_rootfs("/bin/busybox")).unwrap();
        let report = lab.probe(&bundle);
        assert_whole(&report, 3, target);
        let seen = report.path("/usr/bin/npu-tool").unwrap();
        assert_eq!(seen.text.as_deref(), Some("the host's program"), "{target}");
        assert!(fs::read(bundle.in_rootfs("/bin/busybox")).unwrap() == busybox);
    }
}

/// A volume at /etc, and a single file of it.
fn a_read_only_volume_stops_nothing(lab: &Lab) {
    let host = host_with_tools();
    for (source, target) in [
        ("etc", "/etc"),
        ("ld.so.cache", "/etc/ld.so.cache"),
        ("ld.so.conf.d", "/etc/ld.so.conf.d"),
    ] {
        for option in ["ro", "rw"] {
            let volume = Volume::full();
            // A node's files in it would be made there.
            let bundle = all_asked(super::container_with_device(&host, Rootfs::Glibc))
                .mount(
                    "none",
                    &volume.path().join(source),
                    target,
                    &["bind", option],
                )
                .build()
                .unwrap();
            let ran = lab.runc.run(&bundle).unwrap();
            let case = format!("{target}, {option}");
            assert!(ran.status.success(), "{case}: {}", ran.stderr);
            volume.assert_untouched(&case);
            lab.assert_nothing_left(&bundle);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Special {
    Fifo,
    EndlessDevice,
    Terminal,
    Socket,
    Directory,
    SparseFile,
    LinkToItself,
}

impl Special {
    const ALL: [Self; 7] = [
        Self::Fifo,
        Self::EndlessDevice,
        Self::Terminal,
        Self::Socket,
        Self::Directory,
        Self::SparseFile,
        Self::LinkToItself,
    ];

    fn put(self, bundle: &Bundle, place: &str) {
        // Removes what is there.
        put_link(bundle, place, place);
        let path = bundle.in_rootfs(place);
        if matches!(self, Self::LinkToItself) {
            return;
        }
        fs::remove_file(&path).unwrap();
        let device = |major, minor| {
            mknod(
                &path,
                SFlag::S_IFCHR,
                Mode::from_bits_truncate(0o666),
                makedev(major, minor),
            )
        };
        match self {
            Self::Fifo => mkfifo(&path, Mode::from_bits_truncate(0o666)).unwrap(),
            Self::EndlessDevice => device(1, 5).unwrap(),
            Self::Terminal => device(5, 0).unwrap(),
            Self::Socket => drop(UnixListener::bind(&path).unwrap()),
            Self::Directory => fs::create_dir(&path).unwrap(),
            Self::SparseFile => fs::File::create(&path).unwrap().set_len(1 << 40).unwrap(),
            Self::LinkToItself => {}
        }
    }
}

/// The loader cannot read them either. The hook does not wait for a writer, and
/// does not read without end.
fn special_files_stop_nothing_and_block_nothing(lab: &Lab) {
    let host = host_with_tools();
    let places = [
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d/00-boathook.conf",
    ];
    for place in places {
        for special in Special::ALL {
            let bundle = all_asked(container(&host, Rootfs::Glibc)).build().unwrap();
            special.put(&bundle, place);
            let start = Instant::now();
            Outcome::of_bundle(lab, &bundle).assert_whole_or_refused(3, place);
            let took = start.elapsed();
            assert!(took < PATIENCE, "{special:?} at {place}: {took:?}");
        }
    }
}
