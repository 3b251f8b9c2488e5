//! Images and volumes with other things than files where the hook writes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::rootfs::Rootfs;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;

use super::outcome::{Outcome, asked};
use super::volume::{Volume, put_link};
use super::{container, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    a_link_at_a_programs_path_stops_nothing,
    a_read_only_volume_stops_nothing,
    special_files_block_nothing,
);

/// The time that a container with a special file may take, under load.
const PATIENCE: Duration = Duration::from_secs(20);

/// As busybox's applets are, and Debian's alternatives. The other programs that are the same
/// file still work.
fn a_link_at_a_programs_path_stops_nothing(lab: &Lab) {
    let host = host_with_tools();
    let tool = host.root().join("usr/bin/npu-tool");
    fs::write(&tool, "#!/bin/sh\necho the hosts tool\n").unwrap();
    fs::set_permissions(tool, Permissions::from_mode(0o755)).unwrap();
    for target in [
        "busybox",
        "/bin/busybox",
        "../../bin/busybox",
        "/etc/alternatives/npu-tool",
        "nothing",
    ] {
        let script = "[ -c /dev/dummy-npu3 ] && npu-tool; echo other | md5sum";
        let bundle = container(&host, Rootfs::Busybox)
            .args(["/bin/sh", "-c", script])
            .build()
            .unwrap();
        put_link(&bundle, "/usr/bin/npu-tool", target);
        put_link(&bundle, "/etc/alternatives/npu-tool", "/bin/busybox");
        let busybox = fs::read(bundle.in_rootfs("/bin/busybox")).unwrap();
        let printed = lab.run(&bundle);
        let other = printed.strip_prefix("the hosts tool\n");
        let works = other.is_some_and(|other| other.ends_with("  -\n"));
        assert!(works, "{target}: {printed}");
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
            let bundle = asked(super::container_with_device(&host, Rootfs::Glibc))
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

/// A special file: its name, and the function that puts it in a file's place.
type Special = (&'static str, fn(&Path));
const SPECIAL: [Special; 7] = [
    ("a fifo", |path| mkfifo(path, Mode::S_IRWXU).unwrap()),
    ("an endless device", |path| make_device(path, 1, 5)),
    ("a terminal", |path| make_device(path, 5, 0)),
    ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("a sparse file", |path| {
        fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    }),
    ("a link to itself", |path| {
        symlink(path.file_name().unwrap(), path).unwrap()
    }),
];

fn make_device(path: &Path, major: u64, minor: u64) {
    let mode = Mode::from_bits_truncate(0o666);
    mknod(path, SFlag::S_IFCHR, mode, makedev(major, minor)).unwrap();
}

/// The loader cannot read them either, and the container is refused. The hook does not wait
/// for a writer, and does not read without end.
fn special_files_block_nothing(lab: &Lab) {
    let host = host_with_tools();
    let places = [
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d/00-boathook.conf",
        "/usr/lib/x86_64-linux-gnu/libdummy-npu.so.1",
    ];
    for place in places {
        for (name, put) in SPECIAL {
            let bundle = asked(container(&host, Rootfs::Glibc)).build().unwrap();
            // In place of what is there.
            put_link(&bundle, place, place);
            fs::remove_file(bundle.in_rootfs(place)).unwrap();
            put(&bundle.in_rootfs(place));
            let start = Instant::now();
            Outcome::of_bundle(lab, &bundle).assert_whole_or_refused(3, place);
            let took = start.elapsed();
            assert!(took < PATIENCE, "{name} at {place}: {took:?}");
        }
    }
}
