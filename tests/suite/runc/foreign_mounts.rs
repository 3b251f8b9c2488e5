//! Images and volumes with files or links at the paths that the hook uses in a container.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use harness::bundle::BundleBuilder;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::{assert_opens, container};
use crate::lab::{Lab, on_each_cgroup_version, requesting};
use crate::said::assert_says;
use crate::tree::listing;

on_each_cgroup_version!(
    a_link_at_a_programs_path_is_redirected,
    a_read_only_etc_gets_a_note,
);

const VARIABLE: &str = "TOOL_VISIBLE_DEVICES";
const TOOL: &str = "/usr/bin/cksum";

/// A host with a program that the image has as a link to another.
fn with_tool(host: &DemoHost) -> BundleBuilder {
    let tool = host.root().join("usr/bin/cksum");
    fs::create_dir_all(tool.parent().unwrap()).unwrap();
    fs::write(&tool, "#!/bin/sh\necho the hosts tool\n").unwrap();
    fs::set_permissions(&tool, Permissions::from_mode(0o755)).unwrap();
    let class = format!(
        "version = 1\nresource = 'tool.com/npu'\nrequest = {{ env = '{VARIABLE}' }}\n\
         [[discover]]\npath = '/dev/dummy-npu{{index:number}}'\n\
         [device]\nid = 'npu-{{index}}'\nnodes = [{{ path = '/dev/dummy-npu{{index}}' }}]\n\
         [[edits]]\nfiles = ['{TOOL}']\n"
    );
    host.add_class("tool", &class).unwrap();
    requesting(host, Rootfs::Busybox, VARIABLE, "npu-3")
}

/// As busybox and Debian's alternatives have it. The other programs that are the
/// same file still work.
fn a_link_at_a_programs_path_is_redirected(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for target in [
        "/bin/busybox",
        "../../bin/busybox",
        "/etc/alternatives/cksum",
    ] {
        let script = "cksum; echo other | md5sum";
        let bundle = with_tool(&host)
            .args(["/bin/sh", "-c", script])
            .build()
            .unwrap();
        let link = bundle.in_rootfs(TOOL);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        symlink(target, &link).unwrap();
        let alternatives = bundle.in_rootfs("/etc/alternatives");
        fs::create_dir_all(&alternatives).unwrap();
        symlink("/bin/busybox", alternatives.join("cksum")).unwrap();
        let ran = lab.run(&bundle);
        let lines: Vec<&str> = ran.lines().collect();
        assert_eq!(lines[0], "the hosts tool", "{target}");
        assert!(lines[1].ends_with("  -"), "{target}: {lines:?}");
        lab.assert_nothing_left(&bundle);
    }
}

fn a_read_only_etc_gets_a_note(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let etc = host.root().join("etc");
    let before = listing(&etc);
    let container = container(&host, Rootfs::Glibc, "npu-3");
    assert_opens(
        lab,
        container.mount("bind", &etc, "/etc", &["rbind", "ro"]),
        3,
    );
    assert_eq!(listing(&etc), before);
    let log = host.log();
    assert_says(&log, &["set LD_LIBRARY_PATH=/usr/lib/boathook/lib"]);
}
