//! The order of devices, and which of two with one id is the one.

use std::collections::BTreeSet;

use super::{Device, Inventory};

/// Sorts by index, as numbers where they are numbers, then by id. A shorter
/// text goes first: `port9` before `port10`, and PCI addresses as they count.
pub(super) fn sort(devices: &mut [Device]) {
    devices.sort_by_cached_key(|device| {
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
