//! Sorts and numbers the devices of a class, and removes devices from the list that have the id of
//! another one or are divided into parts.

use crate::inserted;
use std::collections::{BTreeMap, BTreeSet};

use super::{Device, Inventory};
use crate::name::DeviceId;

/// The key by which devices are sorted: whether the index is not a number, the index as a number, the
/// length and the text of the index, and the length and the text of the id.
type Key = (bool, Option<u64>, Option<(usize, String)>, (usize, String));

/// Returns the sort key of a device. Devices are sorted by index, and devices with the same index by
/// id. An index that is a number is compared as a number. Of two texts the shorter one comes first,
/// so that `port9` comes before `port10`.
fn key(device: &Device) -> Key {
    let index = device.index.as_ref();
    let number = index.and_then(|index| index.parse::<u64>().ok());
    let shorter_first = |text: &str| (text.len(), text.to_owned());
    let index = index.map(|index| shorter_first(index));
    (
        number.is_none(),
        number,
        index,
        shorter_first(device.id.as_str()),
    )
}

/// Sorts devices. The parts of a device directly follow the device.
pub(super) fn sort(devices: &mut [Device]) {
    let wholes = devices.iter().filter(|device| device.part_of.is_none());
    let keys: BTreeMap<DeviceId, Key> = inserted(wholes.map(|d| (d.id.clone(), key(d))));
    devices.sort_by_cached_key(|device| {
        let whole = device.part_of.as_ref().and_then(|whole| keys.get(whole));
        match whole {
            Some(whole) => (whole.clone(), Some(key(device))),
            None => (key(device), None),
        }
    });
}

/// Sets the index of sorted devices to their position. A part gets the index of its whole
/// device, and the alias `INDEX:PART` with its number among the parts, such as `0:1`.
pub(super) fn number(devices: &mut [Device]) {
    let mut next = 0;
    let mut last: Option<(DeviceId, usize)> = None;
    for device in devices {
        let hardware = device.part_of.as_ref().unwrap_or(&device.id);
        let part = match &last {
            Some((same, parts)) if same == hardware => *parts,
            _ => {
                next += 1;
                0
            }
        };
        let index = next - 1;
        let parts = part + usize::from(device.part_of.is_some());
        last = Some((hardware.clone(), parts));
        device.index = Some(index.to_string());
        if device.part_of.is_some() {
            device.aliases.push(format!("{index}:{part}"));
        }
    }
}

/// Removes the devices that are divided into parts from `devices`, because a device is not offered in
/// addition to its parts. Returns two lists: the divided devices that a request may still name, and
/// those that no request may name.
pub(super) fn take_divided(devices: &mut Vec<Device>) -> (Vec<Device>, Vec<Device>) {
    let parts = devices.iter();
    let wholes = parts.filter_map(|part| Some((part.part_of.clone()?, part.keeps_whole)));
    let divided: BTreeMap<DeviceId, bool> = inserted(wholes);
    let is_divided =
        |device: &mut Device| device.part_of.is_none() && divided.contains_key(&device.id);
    let taken = devices.extract_if(.., is_divided);
    taken.partition(|device| divided.get(&device.id) == Some(&true))
}

/// Removes each device that has the id of an earlier device, and adds a warning. A request could not
/// distinguish two devices with the same id.
pub(super) fn leave_out_duplicates(inventory: &mut Inventory) {
    let mut seen = BTreeSet::new();
    let warnings = &mut inventory.warnings;
    inventory.devices.retain(|device| {
        let first = seen.insert(device.id.clone());
        if !first {
            let nodes: Vec<_> = device
                .nodes
                .iter()
                .map(|n| n.host.display().to_string())
                .collect();
            let nodes = if nodes.is_empty() {
                "no node".to_owned()
            } else {
                nodes.join(", ")
            };
            warnings.push(format!(
                "the id {} is not unique: put what tells the devices apart into `id`; left out: \
                 one with {nodes}",
                device.id
            ));
        }
        first
    });
}
