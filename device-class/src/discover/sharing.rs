//! Devices that several containers may have, and several devices that are one.

use std::collections::BTreeMap;

use super::{Device, DeviceError, Health, Inventory};
use crate::class::{MAX_REPLICAS, Sharing};
use crate::name::{DeviceId, ResourceName};
use crate::template::Attributes;

/// How many containers may have a device with these attributes at once.
///
/// # Errors
/// The number is to be read from an attribute, which is no such number.
pub(super) fn replicas(
    sharing: Option<&Sharing>,
    attributes: &Attributes,
) -> Result<Option<u16>, DeviceError> {
    let Some(sharing) = sharing else {
        return Ok(None);
    };
    let Some(template) = &sharing.replicas_from else {
        return Ok(sharing.replicas.map(|count| count.get()));
    };
    let text = template.fill(attributes)?;
    match text.parse() {
        Ok(count @ 1..=MAX_REPLICAS) => Ok(Some(count)),
        _ => Err(DeviceError::Replicas(crate::name::excerpt(&text))),
    }
}

/// Makes the devices of each resource one, with the nodes of all that are
/// healthy. Its id is the resource's name without the domain.
pub(super) fn merge(inventory: &mut Inventory) {
    let mut merged: BTreeMap<ResourceName, Device> = BTreeMap::new();
    for device in inventory.devices.drain(..) {
        match merged.get_mut(&device.resource) {
            Some(whole) => add(whole, device, &mut inventory.warnings),
            None => {
                let whole = first(device, &mut inventory.warnings);
                merged.insert(whole.resource.clone(), whole);
            }
        }
    }
    inventory.devices.extend(merged.into_values());
}

fn first(device: Device, warnings: &mut Vec<String>) -> Device {
    let name = device.resource.as_str();
    let local = name.split_once('/').map_or(name, |(_, local)| local);
    let mut whole = Device {
        // A resource's name is as long as an id may be, so this can only be
        // shortened, never refused.
        id: DeviceId::shared_from_hardware(local).unwrap_or_else(|_| device.id.clone()),
        index: Some("0".into()),
        aliases: Vec::new(),
        nodes: Vec::new(),
        files: Vec::new(),
        directories: Vec::new(),
        shown: Vec::new(),
        readings: Vec::new(),
        cdi: Vec::new(),
        ..device.clone()
    };
    add(&mut whole, device, warnings);
    whole
}

fn add(whole: &mut Device, part: Device, warnings: &mut Vec<String>) {
    whole.aliases.push(part.id.to_string());
    whole.aliases.extend(part.aliases);
    if whole.numa != part.numa {
        whole.numa = None;
    }
    if let Health::Unhealthy { reason } = &part.health {
        warnings.push(format!("{} is left out of {}: {reason}", part.id, whole.id));
        return;
    }
    whole.health = Health::Healthy;
    whole.readings.extend(part.readings);
    whole.cdi.extend(part.cdi);
    for node in part.nodes {
        if !whole.nodes.contains(&node) {
            whole.nodes.push(node);
        }
    }
    for file in part.files {
        if !whole.files.contains(&file) {
            whole.files.push(file);
        }
    }
    for directory in part.directories {
        if !whole.directories.contains(&directory) {
            whole.directories.push(directory);
        }
    }
    for shown in part.shown {
        if !whole.shown.contains(&shown) {
            whole.shown.push(shown);
        }
    }
}
