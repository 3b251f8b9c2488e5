//! Sorts and numbers the devices of a class. Removes duplicates, and devices that are divided into
//! partitions.

use crate::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};

use super::{Device, Inventory};
use crate::name::DeviceId;

/// The key by which devices are sorted. The fields are compared one after the other: whether the
/// index is not a number, the index as a number, length and text of the index, length and text of
/// the id.
type SortKey = (bool, Option<u64>, Option<(usize, String)>, (usize, String));

/// Returns the sort key of a device. Devices are sorted by index, and those with the same index by
/// id. Numeric indexes come first, in the order of their values. Of two other texts the shorter one
/// comes first, so that `port9` comes before `port10`.
fn sort_key(device: &Device) -> SortKey {
    let index = device.index.as_ref();
    let number = index.and_then(|index| index.parse::<u64>().ok());
    let to_length_key = |text: &str| (text.len(), text.to_owned());
    let index = index.map(|index| to_length_key(index));
    (
        number.is_none(),
        number,
        index,
        to_length_key(device.id.as_str()),
    )
}

/// Sorts devices by index and then by id. The partitions of a device come directly after the
/// device, as [`number_devices`] requires.
pub(super) fn sort_devices(devices: &mut [Device]) {
    let whole_devices = devices.iter().filter(|device| device.part_of.is_none());
    let keys: BTreeMap<DeviceId, SortKey> =
        collect_by_insertion(whole_devices.map(|d| (d.id.clone(), sort_key(d))));
    devices.sort_by_cached_key(|device| {
        let whole_key = device
            .part_of
            .as_ref()
            .and_then(|whole_id| keys.get(whole_id));
        match whole_key {
            Some(whole_key) => (whole_key.clone(), Some(sort_key(device))),
            None => (sort_key(device), None),
        }
    });
}

/// Sets the index of each device to its position in the sorted list, from 0. A partition gets the
/// index of its whole device, and an alias such as `0:1`: this index and the number of the
/// partition, from 0.
pub(super) fn number_devices(devices: &mut [Device]) {
    let mut device_count = 0;
    let mut previous_device: Option<(DeviceId, usize)> = None;
    for device in devices {
        let whole_id = device.part_of.as_ref().unwrap_or(&device.id);
        let part_number = match &previous_device {
            Some((previous_id, part_count)) if previous_id == whole_id => *part_count,
            _ => {
                device_count += 1;
                0
            }
        };
        let index = device_count - 1;
        let part_count = part_number + usize::from(device.part_of.is_some());
        previous_device = Some((whole_id.clone(), part_count));
        device.index = Some(index.to_string());
        if device.part_of.is_some() {
            device.aliases.push(format!("{index}:{part_number}"));
        }
    }
}

/// Removes devices that are divided into partitions from `devices`, because containers normally get
/// only the partitions. The first returned list has the removed devices that a container may still
/// request. The second list has those that no container may request.
pub(super) fn take_divided_devices(devices: &mut Vec<Device>) -> (Vec<Device>, Vec<Device>) {
    let parts = devices.iter();
    let divided_ids =
        parts.filter_map(|part| Some((part.part_of.clone()?, part.can_request_whole_device)));
    let requestable_by_id: BTreeMap<DeviceId, bool> = collect_by_insertion(divided_ids);
    let is_divided = |device: &mut Device| {
        device.part_of.is_none() && requestable_by_id.contains_key(&device.id)
    };
    let partitioned_devices = devices.extract_if(.., is_divided);
    partitioned_devices.partition(|device| requestable_by_id.get(&device.id) == Some(&true))
}

/// Removes each device that has the same id as an earlier device, and adds a warning. A request
/// could not distinguish two devices with the same id.
pub(super) fn remove_duplicate_devices(inventory: &mut Inventory) {
    let mut ids = BTreeSet::new();
    let warnings = &mut inventory.warnings;
    inventory.devices.retain(|device| {
        let is_first = ids.insert(device.id.clone());
        if !is_first {
            let nodes: Vec<_> = device
                .nodes
                .iter()
                .map(|n| n.host_path.display().to_string())
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
        is_first
    });
}
