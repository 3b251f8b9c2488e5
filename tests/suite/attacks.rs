//! Attacks on the host by images, pods' authors, local users and class files.
//!
//! After each, the host is examined for what the attacker would have gained and
//! for what the hook may have left in volumes. `attacks/README.md` lists them.
//!
//! The short run tries a part of each product of variations; with
//! `BOATHOOK_ATTACKS=long` (`make attacks`) all are tried, and races run for
//! thousands of rounds.

mod bounded_work;
mod broken_classes;
mod cgroup_access;
mod changed_processes;
mod container_names;
mod device_names;
mod device_programs;
mod devices_directory;
mod execution;
mod followed_containers;
pub(crate) mod forged_pods;
mod hanging_host;
mod hook_environment;
mod host_devices;
mod hostile_hardware;
mod image_files;
mod killed_hook;
mod links;
pub(crate) mod live_containers;
mod local_users;
mod log_text;
mod outcome;
mod own_requests;
mod planted;
mod podman;
mod process_changes;
mod races;
mod refreshed;
mod removable_masks;
pub(crate) mod renumbered_devices;
mod revocation;
mod revoked_rules;
mod trusted_capabilities;
mod volume;

use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use crate::lab::{STAGE, hook, requesting};

/// A container with the hook that requests a device of the demo host.
fn container_with_device(host: &DemoHost, rootfs: Rootfs) -> BundleBuilder {
    requesting(host, rootfs, DemoHost::VARIABLE, "npu-3")
}

/// The same with the files of [`host_with_tools`].
fn container(host: &DemoHost, rootfs: Rootfs) -> BundleBuilder {
    container_with_hook(hook(host), rootfs)
}

/// The same with the hook started by another method.
fn container_with_hook(hook: HookCommand, rootfs: Rootfs) -> BundleBuilder {
    Bundle::builder(rootfs)
        .hook(STAGE, hook)
        .env(DemoHost::VARIABLE, "npu-3")
        .env("TOOLS_VISIBLE_DEVICES", "all")
}

/// The demo host with a class that has a program, a file and a directory.
fn host_with_tools() -> DemoHost {
    let host = DemoHost::new().unwrap();
    for (path, text) in [
        ("/usr/bin/npu-tool", "the host's program"),
        ("/etc/npu.conf", "the host's file"),
        ("/var/lib/npu/table", "the host's table"),
    ] {
        host.add_file(path, text).unwrap();
    }
    let class = "version = 1\nresource = 'tools.com/npu'\n\
        request = { env = 'TOOLS_VISIBLE_DEVICES' }\ndiscover = [{ count = 1 }]\n\
        [device]\nid = 'tool'\n\
        [[edits]]\nbinaries = ['/usr/bin/npu-tool']\n\
        files = ['/etc/npu.conf']\ndirectories = ['/var/lib/npu']\n";
    host.add_class("tools", class).unwrap();
    host
}

/// Whether every variation is tried.
fn long() -> bool {
    std::env::var("BOATHOOK_ATTACKS").is_ok_and(|value| value == "long")
}

/// All variations in the long run; about `count`, evenly spread, in the short one.
fn chosen<T>(variations: Vec<T>, count: usize) -> impl Iterator<Item = T> {
    let step = if long() {
        1
    } else {
        // Odd, so that every value of an inner factor of a product comes up.
        (variations.len() / count).max(1) | 1
    };
    variations.into_iter().step_by(step)
}

/// A kind of container: a name, and the settings of its user and its root.
type Kind = (&'static str, fn(BundleBuilder) -> BundleBuilder);
const KINDS: [Kind; 4] = [
    ("root", |it| it),
    ("an ordinary user", |it| it.user(1000, 1000)),
    ("a user namespace", BundleBuilder::user_namespace),
    ("read-only", BundleBuilder::readonly),
];
