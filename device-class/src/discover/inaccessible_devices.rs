//! Leaves out devices if Boathook runs in a container that does not have the devices' nodes.
//!
//! Such a container may have only some of the machine's devices, for example an unprivileged LXC
//! container with Docker in it. The driver's files in /proc and /sys list all devices of the
//! machine, but only some of the device nodes exist. The hook cannot create the missing nodes,
//! because a device node that is created in a user namespace cannot be opened (mknod(2),
//! user_namespaces(7)).

use std::path::{Path, PathBuf};

use super::{Device, FoundNode, Inventory, NodeInjectionMethod, PathLookup};
use crate::host::HostView;
use crate::name::DeviceId;

/// The symbolic link whose target identifies the user namespace of this process.
const USER_NAMESPACE_PATH: &str = "/proc/self/ns/user";
/// The target of [`USER_NAMESPACE_PATH`] in the initial user namespace (`PROC_USER_INIT_INO` in
/// `include/linux/proc_ns.h`).
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// A device of the machine that is missing in the container in which Boathook runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InaccessibleDevice {
    pub id: DeviceId,
    /// The reason in words for users. It names the missing node.
    pub reason: String,
}

/// Moves a device to the inaccessible devices if a node of it is missing and cannot be created in
/// this user namespace, while another device of the class has all its nodes. If no device has its
/// nodes, the driver has not created them yet, and no device is moved. Then the hook refuses a
/// container that requests a device, with a message that says how to create the nodes.
pub(super) fn take_inaccessible_devices(inventory: &mut Inventory, host: &dyn HostView) {
    let find_missing_node = |device: &Device| find_missing_node(device, host);
    let devices = || inventory.devices.iter();
    let has_complete_device =
        devices().any(|device| !device.nodes.is_empty() && find_missing_node(device).is_none());
    if !has_complete_device || devices().all(|device| find_missing_node(device).is_none()) {
        return;
    }
    let namespace = host.read_link(Path::new(USER_NAMESPACE_PATH));
    if !namespace.is_ok_and(|namespace| namespace != Path::new(INITIAL_USER_NAMESPACE)) {
        return;
    }
    let inaccessible_devices = inventory.devices.iter().filter_map(|device| {
        let path = find_missing_node(device)?;
        let reason = format!(
            "{} does not exist, and Boathook cannot create it in this user namespace; other \
             devices of the class have their nodes, so either the container in which Boathook \
             runs was not given this one, or the driver of the device has failed",
            path.display()
        );
        let id = device.id.clone();
        Some(InaccessibleDevice { id, reason })
    });
    inventory.inaccessible_devices = inaccessible_devices.collect();
    inventory
        .devices
        .retain(|device| find_missing_node(device).is_none());
}

/// Returns the path of the first required node of a device that does not exist. This also includes
/// a node that the hook would normally create in the container.
fn find_missing_node(device: &Device, host: &dyn HostView) -> Option<PathBuf> {
    let is_missing = |node: &&FoundNode| match (&node.form, &node.number) {
        (NodeInjectionMethod::CreatedNode(_), _) => true,
        (_, PathLookup::Unusable(_)) => matches!(host.entry(&node.host_path), Ok(None)),
        (_, PathLookup::Found(_) | PathLookup::OptionalAbsent) => false,
    };
    let node = device.nodes.iter().find(is_missing)?;
    Some(node.host_path.clone())
}
