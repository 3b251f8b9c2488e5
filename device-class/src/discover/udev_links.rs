//! Finds the symbolic links that udev has created to device nodes. Reads them from udev's database
//! in /run/udev/data of the host. A search in `/dev` would take longer, because it would have to
//! read each directory there.

use std::path::{Component, Path, PathBuf};

use super::nodes::is_link_to;
use super::{FoundNode, Inventory, PathLookup, RequestedDevices};
use crate::class::DeviceClass;
use crate::device::DeviceKind;
use crate::host::{HostView, MAX_ATTRIBUTE_BYTES};

/// The maximum number of links that a container gets for one node. A node usually has fewer than
/// ten.
const MAX_LINKS: usize = 64;

/// Adds udev's links to the nodes of the devices that `requested_devices` selects. `None` selects
/// all devices of the inventory.
pub(super) fn add_device_links(
    class: &DeviceClass,
    inventory: &mut Inventory,
    requested_devices: Option<&dyn RequestedDevices>,
    host: &dyn HostView,
) {
    let devices = inventory
        .devices
        .iter()
        .chain(&inventory.partitioned_devices);
    let mut nodes = devices.flat_map(|device| &device.nodes);
    if !nodes.any(|node| node.has_udev_links) {
        return;
    }
    let ids = requested_devices.map(|devices| devices.find_requested_ids(class, inventory));
    let devices = inventory.devices.iter_mut();
    for device in devices.chain(&mut inventory.partitioned_devices) {
        if ids.as_ref().is_some_and(|ids| !ids.contains(&device.id)) {
            continue;
        }
        add_node_links(&mut device.nodes, host);
    }
}

/// Adds udev's links, such as those in /dev/serial/by-id, to the nodes for which the class file
/// sets `udev_links`.
pub(super) fn add_node_links(nodes: &mut [FoundNode], host: &dyn HostView) {
    for node in nodes.iter_mut().filter(|node| node.has_udev_links) {
        for link in find_udev_links(node, host) {
            if !node.links.contains(&link) {
                node.links.push(link);
            }
        }
    }
}

/// Returns udev's links to a node. Leaves out a link that does not exist any more, or that now
/// leads to another node.
fn find_udev_links(node: &FoundNode, host: &dyn HostView) -> Vec<PathBuf> {
    let PathLookup::Found(number) = node.number else {
        return Vec::new();
    };
    let prefix = match number.kind {
        DeviceKind::Block => 'b',
        DeviceKind::Character => 'c',
    };
    let path = format!("/run/udev/data/{prefix}{}:{}", number.major, number.minor);
    // A host without udev, for example one with mdev, has no such file. Then the node has no links.
    let bytes = host.read(Path::new(&path), MAX_ATTRIBUTE_BYTES);
    let text = String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default();
    let links = text.lines().filter_map(|line| line.strip_prefix("S:"));
    let links = links.take(MAX_LINKS).filter(|link| is_plain_path(link));
    let links = links.map(|link| Path::new("/dev").join(link));
    links
        .filter(|link| *link != node.container_path && is_link_to(link, &node.host_path, host))
        .collect()
}

/// Returns whether a path is relative, printable and without `..`, so that it stays below /dev.
fn is_plain_path(path: &str) -> bool {
    let mut components = Path::new(path).components();
    !path.is_empty()
        && !path.contains(char::is_control)
        && components.all(|component| matches!(component, Component::Normal(_)))
}
