//! The order of devices, and which of two with one id is the one.

use std::collections::BTreeSet;

use super::{Device, Inventory};

/// Sorts by index, as numbers where they are numbers, then by id.
pub(super) fn sort(devices: &mut [Device]) {
    devices.sort_by_cached_key(|device| {
        let index = device.index.as_ref();
        let number = index.and_then(|index| index.parse::<u64>().ok());
        let (index, id) = (device.index.clone(), device.id.clone());
        (number.is_none(), number, index, id)
    });
}

/// Counts sorted devices: their index is their place.
pub(super) fn number(devices: &mut [Device]) {
    for (place, device) in devices.iter_mut().enumerate() {
        device.index = Some(place.to_string());
    }
}

/// Two devices with one id can't be told apart: only the first can be given.
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
            let nodes = nodes.join(", ");
            warnings.push(format!(
                "the id {} is there twice; left out: {nodes}",
                device.id
            ));
        }
        first
    });
}
