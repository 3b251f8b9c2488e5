//! Containers that change the files that were injected: the host keeps its nodes, files
//! and their modes and owners.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use super::{Kind, container, host_with_tools};
use crate::lab::{Lab, asking, on_each_cgroup_version};
use crate::tree::{assert_unchanged, listing};

on_each_cgroup_version!(
    a_container_cannot_change_the_hosts_files,
    a_device_that_cannot_be_changed_is_still_read_and_written,
);

/// Everything that it was given, by its path and by a descriptor of it.
const CHANGE_ALL: &str = r#"
    for path in /dev/dummy-npu3 /usr/bin/npu-tool /etc/npu.conf /var/lib/npu \
            /var/lib/npu/table /usr/lib/boathook /usr/lib/boathook/lib \
            /usr/lib/boathook/lib/* /dev/../dev/dummy-npu3; do
        chmod 0666 "$path"; chown 1000:1000 "$path"; touch "$path"
        rm -rf "$path"; mv "$path" /tmp/moved; ln -f "$path" /tmp/linked
        [ -c "$path" ] || echo attack > "$path"
        { chmod 0666 /proc/self/fd/3; chown 1000 /proc/self/fd/3; } 3< "$path"
    done
    echo done
"#;

fn a_container_cannot_change_the_hosts_files(lab: &Lab) {
    let host = host_with_tools();
    fs::set_permissions(host.node(3), Permissions::from_mode(0o600)).unwrap();
    let before = listing(&host.root());
    for kind in Kind::ALL {
        let builder = container(&host, Rootfs::Busybox).args(["/bin/sh", "-c", CHANGE_ALL]);
        let bundle = kind.of(builder).build().unwrap();
        assert!(lab.run(&bundle).ends_with("done\n"));
        assert_unchanged(&host.root(), &before, &format!("{kind:?}"));
    }
}

fn a_device_that_cannot_be_changed_is_still_read_and_written(lab: &Lab) {
    let host = host_with_tools();
    let bundle = container(&host, Rootfs::Busybox)
        .args(asking(&Questions::new().path("/dev/dummy-npu3")))
        .build()
        .unwrap();
    let report = lab.probe(&bundle);
    let node = report.path("/dev/dummy-npu3").unwrap();
    assert_eq!(node.read, Access::Granted);
    assert_eq!(node.read_write, node.write);
    assert!(
        report
            .mount_at("/dev/dummy-npu3")
            .is_some_and(|mount| mount.has("ro"))
    );
}
