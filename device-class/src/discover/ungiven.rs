//! Devices that a container in a user namespace was not given.
//!
//! Boathook may itself run in a container that has only some of a machine's devices, such as an
//! unprivileged LXC or LXD container with Docker in it. The driver's files in /proc and /sys show
//! all devices of the machine there, but only the nodes of some exist, and a node that is created
//! in a user namespace cannot be opened (mknod(2), user_namespaces(7)).

use std::path::Path;

use super::{Device, Health, Inventory, NodeForm};
use crate::host::HostView;

/// The link of the user namespace of this process, and its target in the initial one
/// (`PROC_USER_INIT_INO` of `include/linux/proc_ns.h`, 0xEFFFFFFD).
const USER_NAMESPACE: &str = "/proc/self/ns/user";
const INITIAL: &str = "user:[4026531837]";

/// Marks devices as unhealthy whose node would have to be created, if no node can be created here
/// and another device of the class has its nodes. Where no device has any, the driver has not
/// created them yet, and the message for a container that requests one says how to do that.
pub(super) fn refuse_ungiven(inventory: &mut Inventory, host: &dyn HostView) {
    let devices = || inventory.devices.iter();
    let has_given = devices().any(|device| !device.nodes.is_empty() && missing(device).is_none());
    if !has_given || devices().all(|device| missing(device).is_none()) {
        return;
    }
    let namespace = host.read_link(Path::new(USER_NAMESPACE));
    if !namespace.is_ok_and(|namespace| namespace != Path::new(INITIAL)) {
        return;
    }
    for device in &mut inventory.devices {
        if let Some(path) = missing(device).map(Path::to_owned) {
            let reason = format!(
                "{} does not exist, and cannot be created in this user namespace: other devices \
                 of the class have their nodes, so the container that Boathook runs in was not \
                 given this one",
                path.display()
            );
            device.health = Health::Unhealthy { reason };
        }
    }
}

/// Returns the first node of a device that the host lacks and that is created in containers.
fn missing(device: &Device) -> Option<&Path> {
    let mut nodes = device.nodes.iter();
    let node = nodes.find(|node| matches!(node.form, NodeForm::Made(_)))?;
    Some(&node.host)
}
