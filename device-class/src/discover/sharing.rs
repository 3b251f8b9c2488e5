//! Shares a device between containers, and combines several devices into one.

use std::collections::BTreeMap;

use super::{Device, DeviceError, Health, Inventory};
use crate::class::{MAX_REPLICAS, Sharing};
use crate::name::{DeviceId, ResourceName};
use crate::template::{Attributes, Template};

/// Returns how many containers may have a device with these attributes at once. `None` means
/// that the device is not shared.
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
        _ => {
            let text = crate::name::excerpt(&text);
            Err(DeviceError(format!("`{text}` is not a number of replicas")))
        }
    }
}

/// Combines devices as `[sharing]` of the class says: all devices of a resource, or those with
/// the same value of `combine_by`.
pub(super) fn combine(sharing: &Sharing, inventory: &mut Inventory) {
    match &sharing.combine_by {
        Some(by) => combine_by(by, inventory),
        None if sharing.combine => merge(inventory),
        None => {}
    }
}

/// Combines the devices of each resource into one device with the nodes of all healthy devices.
/// The id of the combined device is the name of the resource without the domain.
fn merge(inventory: &mut Inventory) {
    let mut merged: BTreeMap<ResourceName, Device> = BTreeMap::new();
    for device in inventory.devices.drain(..) {
        if let Health::Unhealthy { reason } = &device.health {
            let name = local_name(&device);
            let left_out = format!("{} is left out of {name}: {reason}", device.id);
            inventory.warnings.push(left_out);
        }
        match merged.get_mut(&device.resource) {
            Some(whole) => add(whole, device),
            None => {
                // The local name is never refused as an id: a name of a resource is at most as
                // long as an id, and a shared id is shortened if needed.
                let id = DeviceId::shared_from_hardware(local_name(&device));
                let mut whole = empty(id.unwrap_or_else(|_| device.id.clone()), &device);
                add(&mut whole, device);
                merged.insert(whole.resource.clone(), whole);
            }
        }
    }
    inventory.devices.extend(merged.into_values());
    for device in &mut inventory.devices {
        device.index = Some("0".into());
    }
}

/// Combines the devices with the same resource and the same value of `by` into one device. The
/// combined devices keep the order of their first parts, and are numbered from 0.
fn combine_by(by: &Template, inventory: &mut Inventory) {
    let mut combined: Vec<Device> = Vec::new();
    for device in inventory.devices.drain(..) {
        let value = by.fill(&device.attributes).map_err(|e| e.to_string());
        let id = value.and_then(|value| {
            DeviceId::shared_from_hardware(&value).map_err(|error| error.to_string())
        });
        let id = match id {
            Ok(id) => id,
            Err(error) => {
                inventory.warnings.push(format!("{}: {error}", device.id));
                continue;
            }
        };
        let is_whole = |whole: &&mut Device| whole.id == id && whole.resource == device.resource;
        match combined.iter_mut().find(is_whole) {
            Some(whole) => add_whole(whole, device),
            None => {
                let mut whole = empty(id, &device);
                add_whole(&mut whole, device);
                combined.push(whole);
            }
        }
    }
    for (index, device) in combined.iter_mut().enumerate() {
        device.index = Some(index.to_string());
    }
    inventory.devices = combined;
}

/// Adds a device to a combined device that needs all of its devices: one unhealthy device makes
/// the combined device unhealthy.
fn add_whole(whole: &mut Device, mut part: Device) {
    let health = match &whole.health {
        Health::Unhealthy { .. } => whole.health.clone(),
        Health::Healthy => std::mem::replace(&mut part.health, Health::Healthy),
    };
    part.health = Health::Healthy;
    add(whole, part);
    whole.health = health;
}

fn local_name(device: &Device) -> &str {
    let name = device.resource.as_str();
    name.split_once('/').map_or(name, |(_, local)| local)
}

/// Returns a combined device without nodes and files. Its other values, such as the resource,
/// are those of the first device that is added to it.
fn empty(id: DeviceId, first: &Device) -> Device {
    Device {
        id,
        index: None,
        part_of: None,
        keeps_whole: false,
        aliases: Vec::new(),
        nodes: Vec::new(),
        files: Vec::new(),
        directories: Vec::new(),
        shown: Vec::new(),
        readings: Vec::new(),
        ..first.clone()
    }
}

/// Adds a device to a combined device. An unhealthy device adds only its names; a healthy one
/// also adds its nodes and files, and makes the combined device healthy.
fn add(whole: &mut Device, part: Device) {
    whole.aliases.push(part.id.to_string());
    whole.aliases.extend(part.aliases);
    whole.naming = whole.naming.max(part.naming);
    if whole.numa != part.numa {
        whole.numa = None;
    }
    if !part.health.is_healthy() {
        return;
    }
    whole.health = Health::Healthy;
    whole.readings.extend(part.readings);
    add_new(&mut whole.nodes, part.nodes);
    add_new(&mut whole.files, part.files);
    add_new(&mut whole.directories, part.directories);
    add_new(&mut whole.shown, part.shown);
}

/// Adds the values that the list does not have yet.
fn add_new<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}
