//! Finds the device that a request probably means by a mistyped name.

use std::fmt;

use device_class::discover::Device;
use device_class::name::DeviceId;
use device_class::similar;
use serde::Serialize;

use super::address::has_address;
use super::{AwaitedDevice, RequestNames};

/// A device of the host whose name is similar to a requested name. No device has the requested
/// name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SimilarDevice {
    /// The similar name, with quotes if a request needs them.
    pub name: String,
    pub device: DeviceId,
    /// The other names by which a request selects this device alone.
    pub aliases: Vec<String>,
}

impl fmt::Display for SimilarDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "did you mean {}", self.name)?;
        let id = (self.name != self.device.as_str()).then(|| self.device.as_str());
        let aliases = self.aliases.iter().map(String::as_str);
        let other_names: Vec<&str> = id.into_iter().chain(aliases).collect();
        if !other_names.is_empty() {
            write!(f, " (also called {})", other_names.join(", "))?;
        }
        f.write_str("?")
    }
}

impl<'a> RequestNames<'a> {
    /// Finds the device of the host with the most similar name to that of an awaited device. The
    /// awaited name may be mistyped. If the awaited device is named by a path, the last component
    /// of the path is compared.
    pub(crate) fn find_similar_device(
        &self,
        awaited_device: &AwaitedDevice,
    ) -> Option<SimilarDevice> {
        self.find_probable_device(awaited_device.short_name()?)
    }

    /// Returns the device that a request probably means by `mistyped_name`: the device with a node
    /// or a network interface of this name, or else the device with the most similar name. Returns
    /// `None` if no name is similar enough, or if several devices are equally probable.
    pub(super) fn find_probable_device(&self, mistyped_name: &str) -> Option<SimilarDevice> {
        let devices = &self.inventory.devices;
        let list_names = |device: &'a Device| {
            let aliases = device.aliases.iter().map(String::as_str);
            std::iter::once(device.id.as_str()).chain(aliases)
        };
        let mut devices_with_name = devices
            .iter()
            .filter(|device| has_node_or_interface(device, mistyped_name));
        let (device, intended_name) = if let Some(device) = devices_with_name.next() {
            // A node of a USB device has a number as its name, such as `004` in
            // `/dev/bus/usb/001/004`, and every bus can have a node with this number.
            let is_number = mistyped_name.bytes().all(|b| b.is_ascii_digit());
            if is_number || devices_with_name.next().is_some() {
                return None;
            }
            (device, device.id.as_str())
        } else {
            // An address is not a mistyped form of another one, because it is a different place.
            // Only the PCI domain may be missing, as in `3b:00.0` for `0000:3b:00.0`.
            let is_without_domain = |name: &str| {
                let domain = name.strip_suffix(mistyped_name);
                domain.is_some_and(|domain| domain.ends_with(':'))
            };
            let is_comparable = |name: &&str| {
                is_without_domain(name) || !(has_address(mistyped_name) && has_address(name))
            };
            let names = devices.iter().flat_map(list_names).filter(is_comparable);
            let intended_name = similar::find_intended_name(mistyped_name, names)?;
            let device = devices
                .iter()
                .find(|device| list_names(device).any(|name| name == intended_name))?;
            let other_devices = devices.iter().filter(|other| other.id != device.id);
            let comparable_names = other_devices.flat_map(list_names).filter(is_comparable);
            let other_names = comparable_names.filter(|name| *name != intended_name);
            let candidates = other_names.chain([intended_name]);
            if similar::find_intended_name(mistyped_name, candidates) != Some(intended_name) {
                return None;
            }
            (device, intended_name)
        };
        let name = self.format_name(device, intended_name)?.text;
        let other_aliases = device.aliases.iter().filter_map(|alias| {
            let request_text = self.format_name(device, alias)?;
            (request_text.is_unique && alias != intended_name).then_some(request_text.text)
        });
        Some(SimilarDevice {
            aliases: other_aliases.collect(),
            device: device.id.clone(),
            name,
        })
    }

    /// Returns whether the class has only this device, and the similar name is its id. The error
    /// message then contains this id already.
    pub(super) fn is_only_device(&self, similar_device: &SimilarDevice) -> bool {
        let id = similar_device.device.as_str();
        self.inventory.devices.len() == 1 && similar_device.name == id
    }
}

/// Returns whether a node or a network interface of a device has this name on the host.
fn has_node_or_interface(device: &Device, name: &str) -> bool {
    let mut nodes = device.nodes.iter();
    let interface_groups = device.net_interfaces.iter();
    let mut interfaces = interface_groups.flat_map(|interfaces| &interfaces.host_interfaces);
    nodes.any(|node| node.host_path.file_name() == Some(name.as_ref()))
        || interfaces.any(|interface| interface.name == name)
}
