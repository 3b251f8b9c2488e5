//! Recognizes names of udev links that could belong to two devices.

use std::path::Path;

use device_class::discover::Device;

use super::names::RequestNames;

impl RequestNames<'_> {
    /// Returns whether the link `name` of `device` may later lead to another device of the class.
    /// Such a link is in a directory such as `/dev/serial/by-id`.
    ///
    /// udev makes the name from the model and the serial number. If two devices have the same model
    /// and no serial number of their own, only the one that appeared last has the link.
    pub fn may_lose_udev_name(&self, device: &Device, name: &str) -> bool {
        if !list_udev_names(device).any(|udev_name| udev_name == name) {
            return false;
        }
        let mut other_devices = self.devices().iter().filter(|other| other.id != device.id);
        // If the name contains a serial number that no other device has, no other device gets the
        // link.
        let mut aliases = device.aliases.iter().filter(|alias| *alias != name);
        let has_serial_number = aliases
            .any(|alias| name.contains(alias.as_str()) && self.identifies_device(device, alias));
        !has_serial_number && other_devices.any(|other| list_udev_names(other).next().is_none())
    }
}

/// Returns the names of the links to the device's nodes in directories such as `/dev/serial/by-id`.
fn list_udev_names(device: &Device) -> impl Iterator<Item = &str> {
    let links = device.nodes.iter().flat_map(|node| &node.links);
    let by_id_links = links.filter(|link| {
        link.parent()
            .is_some_and(|parent| parent.ends_with("by-id"))
    });
    by_id_links.filter_map(|link| Path::new(link).file_name()?.to_str())
}
