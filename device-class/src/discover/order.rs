//! The order of devices, which of two with one id is the one, and devices that
//! are parts of others.

use crate::inserted;
use std::collections::{BTreeMap, BTreeSet};

use super::{Device, Inventory};
use crate::name::DeviceId;

/// What a device is sorted by.
type Key = (bool, Option<u64>, Option<(usize, String)>, (usize, String));

/// By index, as numbers where they are numbers, then by id. A shorter text goes
/// first: `port9` before `port10`, and PCI addresses as they count.
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

/// Sorts devices. The parts of a device follow it.
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

/// Counts sorted devices: their index is their place. Parts have the index of the
/// device that they are of, and are counted by themselves: `0:1`.
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

/// A device with parts is not offered in addition to them. Returns those that a request may
/// name, and the others.
pub(super) fn take_divided(devices: &mut Vec<Device>) -> (Vec<Device>, Vec<Device>) {
    let parts = devices.iter();
    let wholes = parts.filter_map(|part| Some((part.part_of.clone()?, part.keeps_whole)));
    let divided: BTreeMap<DeviceId, bool> = inserted(wholes);
    let is_divided =
        |device: &mut Device| device.part_of.is_none() && divided.contains_key(&device.id);
    let taken = devices.extract_if(.., is_divided);
    taken.partition(|device| divided.get(&device.id) == Some(&true))
}

/// Two devices with one id cannot be distinguished: only the first can be given.
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
            warnings.push(format!(
                "the id {} is not unique: put what tells the devices apart into `id`; left out: \
                 one with {}",
                device.id,
                match nodes.is_empty() {
                    true => "no node".to_owned(),
                    false => nodes.join(", "),
                }
            ));
        }
        first
    });
}
