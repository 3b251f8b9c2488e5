//! Containers that change the files that were injected: the host keeps its nodes, files
//! and their modes and owners.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use harness::rootfs::Rootfs;

use super::{KINDS, container, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::tree::{assert_unchanged, listing};

on_each_cgroup_version!(a_container_cannot_change_the_hosts_files);

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
    for (name, kind) in KINDS {
        let builder = container(&host, Rootfs::Busybox).args(["/bin/sh", "-c", CHANGE_ALL]);
        let bundle = kind(builder).build().unwrap();
        assert!(lab.run(&bundle).ends_with("done\n"));
        assert_unchanged(&host.root(), &before, name);
    }
}
