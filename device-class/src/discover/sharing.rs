//! Shares a device among containers, and combines several devices into one, as `[sharing]` of the
//! class file describes.

use std::collections::BTreeMap;

use super::{Device, DeviceError, Health, Inventory};
use crate::class::{
    MAX_REPLICAS, REPLICAS_ATTRIBUTE, RESOURCE_ATTRIBUTE, SHARED_ATTRIBUTE,
    SHARED_SUFFIX_ATTRIBUTE, Sharing,
};
use crate::name::{AttributeName, DeviceId, ResourceName};
use crate::template::{Attributes, Template};

/// The end of a resource's name that tells users that its devices are shared, such as
/// `vendor.example/npu.shared`.
const SHARED_RESOURCE_SUFFIX: &str = ".shared";

/// Returns the number of containers that may have a device with these attributes at once. Returns
/// `None` if the device is not shared.
pub(super) fn fill_replica_count(
    sharing: Option<&Sharing>,
    attributes: &Attributes,
) -> Result<Option<u16>, DeviceError> {
    let Some(sharing) = sharing else {
        return Ok(None);
    };
    let Some(template) = &sharing.replica_count_template else {
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

/// Returns the attributes for the labels of the Kubernetes node: those of the device, its
/// `resource`, and three about sharing. `replicas` is the number of containers that may have the
/// device at once. `shared` is `true` if this number is greater than 1, and `false` otherwise.
/// `shared_suffix` is `-SHARED` if the device is shared and the name of the resource does not say
/// so, and empty otherwise.
pub fn list_label_attributes(device: &Device) -> Attributes {
    let replicas = device.replicas.unwrap_or(1);
    let is_named_shared = device.resource.as_str().ends_with(SHARED_RESOURCE_SUFFIX);
    let is_shared = replicas > 1;
    let shared_suffix = if is_shared && !is_named_shared {
        "-SHARED"
    } else {
        ""
    };
    let label_attributes = [
        (RESOURCE_ATTRIBUTE, device.resource.to_string()),
        (REPLICAS_ATTRIBUTE, replicas.to_string()),
        (SHARED_ATTRIBUTE, is_shared.to_string()),
        (SHARED_SUFFIX_ATTRIBUTE, shared_suffix.to_owned()),
    ];
    let mut attributes = device.attributes.clone();
    for (name, value) in label_attributes {
        if let Ok(name) = AttributeName::try_from(name.to_owned()) {
            attributes.entry(name).or_insert(value);
        }
    }
    attributes
}

/// Combines several devices into one device, as `[sharing]` of the class describes. These are
/// either all devices of a resource, or all with the same value of `combine_by`.
pub(super) fn combine_devices(sharing: &Sharing, inventory: &mut Inventory) {
    match &sharing.combination_key {
        Some(template) => combine_devices_with_key(template, inventory),
        None if sharing.combines_resource => combine_by_resource(inventory),
        None => {}
    }
}

/// Combines the devices of each resource into one device. It has the nodes of all healthy devices
/// of the resource. Its id is the name of the resource without the domain.
fn combine_by_resource(inventory: &mut Inventory) {
    let mut combined_devices: BTreeMap<ResourceName, Device> = BTreeMap::new();
    for device in inventory.devices.drain(..) {
        if let Health::Unhealthy { reason } = &device.health {
            let name = resource_name_without_domain(&device);
            let warning = format!("{} is left out of {name}: {reason}", device.id);
            inventory.warnings.push(warning);
        }
        match combined_devices.get_mut(&device.resource) {
            Some(combined_device) => add_member(combined_device, device),
            None => {
                // This fails only for an empty name, which no resource has. A name that is too long
                // for the id of a shared device is shortened.
                let id = DeviceId::shared_from_hardware(resource_name_without_domain(&device));
                let mut combined_device =
                    new_empty_combined_device(id.unwrap_or_else(|_| device.id.clone()), &device);
                add_member(&mut combined_device, device);
                combined_devices.insert(combined_device.resource.clone(), combined_device);
            }
        }
    }
    inventory.devices.extend(combined_devices.into_values());
    for device in &mut inventory.devices {
        device.index = Some("0".into());
    }
}

/// Combines devices that have the same resource and the same value of `template` into one device.
/// The combined devices keep the order of their first members. Their indexes are numbers from 0.
fn combine_devices_with_key(template: &Template, inventory: &mut Inventory) {
    let mut combined_devices: Vec<Device> = Vec::new();
    for device in inventory.devices.drain(..) {
        let value = template.fill(&device.attributes).map_err(|e| e.to_string());
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
        let has_same_key = |combined_device: &&mut Device| {
            combined_device.id == id && combined_device.resource == device.resource
        };
        match combined_devices.iter_mut().find(has_same_key) {
            Some(combined_device) => add_required_member(combined_device, device),
            None => {
                let mut combined_device = new_empty_combined_device(id, &device);
                add_required_member(&mut combined_device, device);
                combined_devices.push(combined_device);
            }
        }
    }
    for (index, device) in combined_devices.iter_mut().enumerate() {
        device.index = Some(index.to_string());
    }
    inventory.devices = combined_devices;
}

/// Adds a device to a combined device that is healthy only if all its member devices are healthy.
fn add_required_member(combined_device: &mut Device, mut member: Device) {
    let health = match &combined_device.health {
        Health::Unhealthy { .. } => combined_device.health.clone(),
        Health::Healthy => std::mem::replace(&mut member.health, Health::Healthy),
    };
    member.health = Health::Healthy;
    add_member(combined_device, member);
    combined_device.health = health;
}

fn resource_name_without_domain(device: &Device) -> &str {
    let name = device.resource.as_str();
    name.split_once('/').map_or(name, |(_, local)| local)
}

/// Returns a combined device without nodes and files. Other values, such as the resource, are
/// copied from its first member device.
fn new_empty_combined_device(id: DeviceId, first_member: &Device) -> Device {
    Device {
        id,
        index: None,
        part_of: None,
        can_request_whole_device: false,
        aliases: Vec::new(),
        nodes: Vec::new(),
        files: Vec::new(),
        directories: Vec::new(),
        unmasked_entries: Vec::new(),
        net_interfaces: None,
        deferred_checks: Vec::new(),
        whole_device_fault: None,
        ..first_member.clone()
    }
}

/// Adds `member` to a combined device, which becomes healthy if at least one member is healthy. The
/// id and the aliases of every member are added as aliases. Nodes and files are added only from
/// healthy members.
fn add_member(combined_device: &mut Device, member: Device) {
    combined_device.aliases.push(member.id.to_string());
    combined_device.aliases.extend(member.aliases);
    combined_device.name_origin = combined_device.name_origin.max(member.name_origin);
    if combined_device.numa != member.numa {
        combined_device.numa = None;
    }
    if !member.health.is_healthy() {
        return;
    }
    combined_device.health = Health::Healthy;
    combined_device
        .deferred_checks
        .extend(member.deferred_checks);
    add_missing_values(&mut combined_device.nodes, member.nodes);
    add_missing_values(&mut combined_device.files, member.files);
    add_missing_values(&mut combined_device.directories, member.directories);
    add_missing_values(
        &mut combined_device.unmasked_entries,
        member.unmasked_entries,
    );
}

/// Adds each new value that the list does not contain yet. Members of a combined device may have
/// the same nodes and files, which a container must get only once.
fn add_missing_values<T: PartialEq>(values: &mut Vec<T>, new_values: Vec<T>) {
    for value in new_values {
        if !values.contains(&value) {
            values.push(value);
        }
    }
}
