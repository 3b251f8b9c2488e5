//! `boathook attach` and `detach`, on containers of runc that run.

mod announced;
mod attached;
mod figures;
pub(crate) mod follow;
mod hidden;
mod listed;
mod older_kernels;
mod open_devices;
mod outdated;
pub(crate) mod placed;
pub(crate) mod refreshed;
pub(crate) mod refused;
mod replugged;
mod retried;
mod same_id;
mod used;
mod waiting;
mod waiting_again;
mod whole_dev;

use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder};
use harness::captured::Captured;
use harness::demo_host::in_container::node;
use harness::demo_host::{DemoHost, HostDirectory};
use harness::probe::Access;
use harness::rootfs::Rootfs;
use harness::runc::Container;

use crate::lab::Lab;

/// A container that was started without anything of Boathook.
pub(crate) fn plain(rootfs: Rootfs) -> BundleBuilder {
    Bundle::builder(rootfs)
}

/// `boathook COMMAND ...` for containers of this runc, unless others are named.
pub(crate) fn command(lab: &Lab, host: &HostDirectory, arguments: &[&str]) -> Command {
    let program: &Path = &binaries::program("boathook").unwrap();
    let mut command = lab.runc.view().command(program).unwrap();
    command
        .arg("--config")
        .arg(host.config_file())
        .args(arguments);
    let of_containers = ["attach", "detach", "refresh", "doctor", "check"];
    let is_of_containers = of_containers.contains(&arguments[0]) || arguments.contains(&"--used");
    if is_of_containers && !arguments.contains(&"--root") {
        command.arg("--root").arg(lab.runc.state_directory());
    }
    command
}

pub(crate) fn boathook(lab: &Lab, host: &HostDirectory, arguments: &[&str]) -> Captured {
    Captured::run(&mut command(lab, host, arguments)).unwrap()
}

/// Returns the output of the command, which must succeed.
pub(crate) fn done(lab: &Lab, host: &DemoHost, arguments: &[&str]) -> String {
    boathook(lab, host, arguments).success().unwrap().stdout
}

/// Whether the container can read the device, or why not; `None`: it has no node.
pub(crate) fn reads(container: &Container<'_>, index: usize) -> Option<Access> {
    let seen = container.look(node(index)).unwrap();
    seen.number().is_some().then_some(seen.read)
}

/// The records of attached devices. All other files belong to one of these.
pub(crate) fn records(host: &DemoHost) -> Vec<String> {
    let directory = host.root().join("run/boathook/attached");
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let (others, records): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with('.'));
    let is_known = |other: &String| {
        let mut records = records.iter();
        records.any(|id| *other == format!(".{id}.lock") || *other == format!(".{id}.new"))
    };
    assert!(others.iter().all(is_known), "{others:?} of {records:?}");
    records
}
