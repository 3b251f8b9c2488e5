//! Containers that could remove what hides other devices from them.

use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::demo_host::HostDirectory;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version};

on_each_cgroup_version!(a_container_that_could_remove_a_mask_is_refused);

const CLASS: &str = "version = 1\n\
    resource = 'example.com/chip'\n\
    request = { env = 'CHIP_VISIBLE_DEVICES' }\n\
    discover = [{ path = '/proc/driver/chips/{index:number}' }]\n\
    device = { id = 'chip-{index}', index = '{index}', unmask = ['/proc/driver/chips/{index}'] }\n\
    edits = [{ masks = [{ path = '/proc/driver/chips' }] }]\n";

/// In a user namespace CAP_SYS_ADMIN is enough to unmount what the host has mounted for
/// the container. Without one the container is as good as root on the host anyway.
fn a_container_that_could_remove_a_mask_is_refused(lab: &Lab) {
    type Kind = fn(BundleBuilder) -> BundleBuilder;
    let both: Kind = |it| it.user_namespace().sys_admin();
    let allowed = "[trust]\nallow_removable_masks = true\n";
    for (name, kind, config, seen) in [
        ("rights", both, "", None),
        ("rights that are allowed", both, allowed, Some("0 1")),
        ("no rights", BundleBuilder::user_namespace, "", Some("1")),
        ("no namespace", BundleBuilder::sys_admin, "", Some("0 1")),
    ] {
        let host = HostDirectory::new().unwrap();
        host.add_class("chips", CLASS).unwrap();
        host.write_config(config).unwrap();
        for chip in ["0", "1"] {
            let file = format!("/proc/driver/chips/{chip}/serial");
            host.add_file(&file, chip).unwrap();
        }
        let driver = HookCommand::binding(&host.root().join("proc/driver"), "/proc/driver");
        let script = "umount -l /proc/driver/chips; echo $(ls /proc/driver/chips)";
        let bundle = Bundle::builder(Rootfs::Busybox)
            .hook(STAGE, driver)
            .hook(STAGE, hook(&host))
            .env("CHIP_VISIBLE_DEVICES", "1")
            .args(["/bin/sh", "-c", script]);
        let bundle = kind(bundle).build().unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        lab.assert_nothing_left(&bundle);
        let started = ran.status.success().then(|| ran.stdout.trim());
        assert_eq!(started, seen, "{name}: {}", ran.stderr);
        if seen.is_none() {
            let reason = "could remove the mask of /proc/driver/chips";
            assert!(ran.stderr.contains(reason), "{}", ran.stderr);
        }
    }
}
