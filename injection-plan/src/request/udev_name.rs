//! Recognizes names of udev that two devices have in common.

use std::path::Path;

use device_class::discover::Device;

use super::names::RequestNames;

impl RequestNames<'_> {
    /// Returns whether `name` is the name of a link in a directory `by-id`, and another device of the
    /// class may get the link, because both have the same model and no serial number of their own.
    ///
    /// udev makes such a link from the model and the serial number. If two devices have the same, only
    /// the one that appeared last has the link, and the other one has none.
    pub fn may_lose_udev_name(&self, device: &Device, name: &str) -> bool {
        if !list_udev_names(device).any(|udev_name| udev_name == name) {
            return false;
        }
        let mut other_devices = self.devices().iter().filter(|other| other.id != device.id);
        // A serial number that no other device has is in the link's name.
        let mut aliases = device.aliases.iter().filter(|alias| *alias != name);
        let has_serial_number = aliases
            .any(|alias| name.contains(alias.as_str()) && self.identifies_device(device, alias));
        !has_serial_number && other_devices.any(|other| list_udev_names(other).next().is_none())
    }
}

/// Returns the names of the links to the device's nodes in directories `by-id`.
fn list_udev_names(device: &Device) -> impl Iterator<Item = &str> {
    let links = device.nodes.iter().flat_map(|node| &node.links);
    let links = links.filter(|link| {
        link.parent()
            .is_some_and(|parent| parent.ends_with("by-id"))
    });
    links.filter_map(|link| Path::new(link).file_name()?.to_str())
}
