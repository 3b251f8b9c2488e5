//! Finds the names in a request that belong to several different pieces of hardware. For example, a
//! maker gave all its adapters the same serial number, or two cameras are of one model.

use device_class::DeviceClass;
use device_class::discover::{Device, Inventory};
use device_class::name::{DeviceId, excerpt};

use super::Selection;
use super::address::{has_address, is_usb_port};
use super::cdi_name::split_cdi_kind;
use super::names::{RequestNames, ResolvedItem};

/// The maximum number of devices that a message about a shared name lists.
const MAX_LISTED_DEVICES: usize = 8;

/// A name in a request that several devices have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedName {
    name: String,
    devices: Vec<DeviceId>,
}

impl SharedName {
    /// Returns whether the container gets more than one of the devices with this name.
    pub(crate) fn matches_several_devices(&self, granted_devices: &[&Device]) -> bool {
        let is_shared = |device: &&&Device| self.devices.contains(&device.id);
        granted_devices.iter().filter(is_shared).count() > 1
    }

    /// Returns a message that lists the devices with this name, and advises to request one of them
    /// by its id.
    pub(crate) fn describe(&self) -> String {
        let count = self.devices.len();
        let ids = self.devices.iter().map(DeviceId::as_str);
        let listed_ids: Vec<&str> = ids.take(MAX_LISTED_DEVICES).collect();
        let omitted_note = match count - listed_ids.len() {
            0 => String::new(),
            omitted_count => format!(" and {omitted_count} more"),
        };
        let first_id = listed_ids.first().copied().unwrap_or_default();
        format!(
            "`{}` is the name of {count} devices, of which the container gets more than one: \
             {}{omitted_note}; to give one, write its id, such as {first_id}",
            excerpt(&self.name),
            listed_ids.join(", ")
        )
    }
}

impl Selection {
    /// Returns the aliases in the request that several pieces of hardware have. The result is empty
    /// if `boathook follow` does not update the devices of the class in running containers
    /// (`is_followed` is false). Such a class uses one alias for several devices on purpose, such
    /// as a model or a group.
    pub(crate) fn find_shared_names(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Vec<SharedName> {
        let Selection::Items(items) = self else {
            return Vec::new();
        };
        if !class.spec.is_followed {
            return Vec::new();
        }
        let names = RequestNames::new(class, inventory);
        let shared_names = items.iter().filter_map(|item| {
            let (_, name) = split_cdi_kind(item, &class.spec);
            if has_address(name) || !names.is_alias(name) {
                return None;
            }
            let Ok(ResolvedItem::Devices(positions)) = names.resolve_item(item) else {
                return None;
            };
            let devices: Vec<&Device> = positions.select_devices(inventory).collect();
            let (first, others) = devices.split_first()?;
            let is_other_hardware = |other: &&Device| !is_same_hardware(first, other, name);
            others.iter().any(is_other_hardware).then(|| SharedName {
                name: name.to_owned(),
                devices: devices.iter().map(|device| device.id.clone()).collect(),
            })
        });
        // A request may contain a name twice in different forms, such as with and without a CDI
        // kind. Names with the same devices are returned once.
        let mut different_names: Vec<SharedName> = Vec::new();
        for shared_name in shared_names {
            if different_names
                .iter()
                .all(|other| other.devices != shared_name.devices)
            {
                different_names.push(shared_name);
            }
        }
        different_names
    }
}

/// Returns whether two devices belong together, such as two ports of one adapter: they are parts of
/// one device, have an alias in common besides `name`, or are at the same USB port.
fn is_same_hardware(device: &Device, other: &Device, name: &str) -> bool {
    let mut aliases = device.aliases.iter();
    device.part_of.is_some() && device.part_of == other.part_of
        || aliases.any(|alias| !alias.eq_ignore_ascii_case(name) && other.aliases.contains(alias))
        || usb_port_in(&device.id).is_some_and(|port| usb_port_in(&other.id) == Some(port))
}

/// Returns the USB port in the id of a device, such as `1-2.4` in `serial-1-2.4:1.0`.
fn usb_port_in(id: &DeviceId) -> Option<&str> {
    let (_, place) = id.as_str().split_once('-')?;
    let port = place.split(':').next()?;
    is_usb_port(port).then_some(port)
}
