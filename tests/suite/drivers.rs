//! The vendors' real user-space drivers, as Debian packages them: what is on a host
//! with such packages arrives in containers, and works there as far as it can
//! without the device.
//!
//! Packages are downloaded once, about 1 GB, and kept below cargo's output directory
//! (`make test-drivers`).

mod facts;
mod gpu;
mod nvidia;
mod others;

use harness::binaries;

use harness::bundle::{Bundle, BundleBuilder};
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::compile::{self, Libc};
use harness::demo_host::HostDirectory;
use harness::driver_tree::DriverTree;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, with_lab};

/// The path of `programs/driver-probe.c` in containers.
const PROBE: &str = "/bin/driver-probe";

/// Runs a test's body where root file systems can be made and containers can be run.
fn with_drivers(test: &str, body: fn(&Lab)) {
    match DriverTree::missing() {
        Some(reason) => skip::report(test, &reason),
        None => with_lab(test, CgroupView::V1, body),
    }
}

/// A container of this image with the hook and the probe.
fn container(host: &HostDirectory, image: &DriverTree, command: &[&str]) -> BundleBuilder {
    Bundle::with_hook(Rootfs::Empty, &host.config_file())
        .unwrap()
        .tree(&image.directory().unwrap())
        .args(command.iter().copied())
}

/// Makes the bundle and runs it, whatever its command's status.
fn run(lab: &Lab, container: BundleBuilder) -> Captured {
    let bundle = container.build().unwrap();
    let probe = compile::program("driver-probe.c", Libc::Glibc, &["-ldl"]).unwrap();
    binaries::copy(&probe, &bundle.in_rootfs(PROBE)).unwrap();
    let ran = lab.runc.run(&bundle).unwrap();
    lab.assert_nothing_left(&bundle);
    ran
}
