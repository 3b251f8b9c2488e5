//! Removals where parts of the host are mounted by themselves, as in the pod of the uninstallation.

use std::process::Output;

use crate::site::{Site, VERSION, said, with_mounts};

/// The lock of a release, in a directory that the pod mounts.
const LOCK: &str = "run/boathook/release/lock";
const LOG: &str = "run/boathook/log/hook.log";

fn with_files_of_the_run() -> Site {
    let site = Site::with_containerd();
    site.write(LOCK, "");
    site.write(LOG, "");
    said(&site.run(&["install"]));
    site
}

fn uninstall_among_mounts(site: &Site, mounts: &str) -> Option<Output> {
    let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), site.root().display());
    with_mounts(&format!(
        "cd {root}; {mounts}; {program} --host-root {root} uninstall"
    ))
}

fn assert_uninstalled(site: &Site) {
    assert!(!site.path("opt/boathook").join(VERSION).exists());
    assert!(!site.path("opt/boathook/state").exists());
    let configuration = site.read("etc/containerd/config.toml");
    assert!(!configuration.contains("boathook"), "{configuration}");
}

#[test]
fn a_mount_in_the_directory_of_the_run_stays() {
    let site = with_files_of_the_run();
    let mounts = "mount --bind run/boathook/release run/boathook/release";
    let Some(output) = uninstall_among_mounts(&site, mounts) else {
        return;
    };
    said(&output);
    assert_uninstalled(&site);
    assert!(site.path(LOCK).exists());
    assert!(!site.path(LOG).exists());
}

#[test]
fn a_root_that_is_read_only_has_its_volumes_reverted() {
    let site = with_files_of_the_run();
    let mounts = "mount --bind . .; cd $PWD; mount --bind opt opt; mount --bind etc etc; \
        mount --bind run/boathook/release run/boathook/release; mount -o remount,bind,ro $PWD";
    let Some(output) = uninstall_among_mounts(&site, mounts) else {
        return;
    };
    said(&output);
    assert_uninstalled(&site);
    assert!(site.path(LOCK).exists() && site.path(LOG).exists());
}
