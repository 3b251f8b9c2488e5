//! The hook in real containers.

mod called_again;
pub(crate) mod classes;
mod container_kinds;
mod devices;
mod doctor;
mod driver_root;
mod hidden_calls;
mod image_libraries;
mod image_names;
mod libraries;
mod libraries_32bit;
mod made_nodes;
mod masked_paths;
mod masks;
mod nested;
mod net_interfaces;
mod nothing_asked;
mod optional_files;
mod owners;
mod programming;
mod refusals;
mod requests;
mod writable_directories;
mod writable_layer;

use harness::bundle::BundleBuilder;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::probe::{Access, Questions};
use harness::rootfs::Rootfs;

use crate::lab::{Lab, requesting};

/// A container with the hook, requesting devices of the class `dummy-npu`.
fn container(host: &DemoHost, rootfs: Rootfs, devices: &str) -> BundleBuilder {
    requesting(host, rootfs, DemoHost::VARIABLE, devices)
}

/// Runs the container, which can read the device of this index.
fn assert_opens(lab: &Lab, container: BundleBuilder, index: usize) {
    let report = lab.look(container, &Questions::new().path(node(index)));
    assert_eq!(report.path(node(index)).unwrap().read, Access::Granted);
}

/// The container with a device's node and rule in config.json, as an engine adds them
/// for its `--device` and for CDI specifications.
fn with_node_of_engine(container: BundleBuilder, host: &DemoHost, index: usize) -> BundleBuilder {
    let number = host.device(index).number();
    container.char_device(node(index), number, "rwm")
}
