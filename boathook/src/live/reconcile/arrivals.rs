//! Adds devices to attachment records when they arrive on the host. Containers requested these
//! devices before the host had them. This module changes only records, and no container.

use std::collections::BTreeSet;

use device_class::config::Config;
use device_class::name::{ClassName, DeviceRef};
use hook::attachment::{AttachmentRecord, AwaitedRequest, ContainerDevice, make_substitute_id};
use hook::oci::Bundle;
use hook::planner;

use crate::live::ContainerChangeError;
use crate::live::reconcile::HostSnapshot;

/// The maximum number of devices in an attachment record. If a record has this many devices, no
/// awaited device is added to it. Without this limit, the record would grow endlessly if a device
/// gets a new id each time it is plugged in.
const MAX_RECORDED_DEVICES: usize = 256;

/// Returns a copy of `record` with the devices that the container requested earlier and that the
/// host has now.
pub(crate) fn copy_with_present_devices(
    record: &AttachmentRecord,
    snapshot: &HostSnapshot,
) -> AttachmentRecord {
    let mut new_record = record.clone();
    for class in list_request_classes(record) {
        separate_reassigned_names(&mut new_record, &class, snapshot);
    }
    for request in new_record.awaited_requests.clone() {
        add_devices_of_request(&mut new_record, &request, snapshot);
    }
    new_record
}

/// Adds to a record the devices that the container requested earlier and that the host has now, if
/// the container may still request them. Returns whether the record was changed.
pub(crate) fn add_arrived_devices(
    record: &mut AttachmentRecord,
    bundle: &Bundle,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<bool, ContainerChangeError> {
    let mut is_changed = false;
    for class_name in list_request_classes(record) {
        let mut new_record = record.clone();
        if separate_reassigned_names(&mut new_record, &class_name, snapshot)
            && let Some(class) = snapshot.find_followed_class(&class_name)
            && planner::is_variable_sufficient(&class.class, bundle, config)?
        {
            *record = new_record;
            is_changed = true;
        }
    }
    for request in record.awaited_requests.clone() {
        let Some(class) = snapshot.find_followed_class(&request.class) else {
            continue;
        };
        let mut new_record = record.clone();
        // The trust settings may have changed since the container's start. If they do not allow the
        // container to request the class by a variable any more, it does not get the device.
        if add_devices_of_request(&mut new_record, &request, snapshot)
            && planner::is_variable_sufficient(&class.class, bundle, config)?
        {
            *record = new_record;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Splits the entry of a device in `record` into two, if its recorded name now leads to another
/// device or to none. Returns whether the record was changed.
///
/// A container may have requested one device by several names, of which its record has only one. If
/// another of these names still leads to the device, the device stays in the record, with its rules
/// and files. The moved name gets an entry of its own, with a substitute id.
fn separate_reassigned_names(
    record: &mut AttachmentRecord,
    class_name: &ClassName,
    snapshot: &HostSnapshot,
) -> bool {
    let Some(class) = snapshot.find_followed_class(class_name) else {
        return false;
    };
    let has_moved = |device: &ContainerDevice| {
        device.class == *class_name
            && device.name.is_some()
            && snapshot.find_host_id(device).as_ref() != Some(&device.device_id)
    };
    if !record.devices.iter().any(has_moved) {
        return false;
    }
    let requests = record.awaited_requests.iter().enumerate();
    let requests = requests.filter(|(_, request)| request.class == *class_name);
    let devices_by_request: Vec<(usize, Vec<ContainerDevice>)> = requests
        .map(|(position, request)| (position, request.find_arrived_devices(class)))
        .collect();
    let mut is_changed = false;
    for index in 0..record.devices.len() {
        let device = &record.devices[index];
        if !has_moved(device) || record.devices.len() >= MAX_RECORDED_DEVICES {
            continue;
        }
        let Some(substitute_id) = device.name.as_ref().and_then(make_substitute_id) else {
            continue;
        };
        let substitute_ref = DeviceRef::new(class_name, &substitute_id);
        let mut devices = record.devices.iter();
        if devices.any(|other| other.device_ref() == substitute_ref) {
            continue;
        }
        let mut staying_device: Option<ContainerDevice> = None;
        let mut moved_requests = Vec::new();
        for (position, arrived_devices) in &devices_by_request {
            let mut arrived_devices = arrived_devices.iter();
            let arrived_device = arrived_devices.find(|candidate| {
                candidate.device_id == device.device_id && snapshot.has_nodes(candidate)
            });
            match (arrived_device, &mut staying_device) {
                (Some(arrived_device), None) => staying_device = Some(arrived_device.clone()),
                (Some(arrived_device), Some(device)) => {
                    device.add_node_paths(&arrived_device.node_paths);
                }
                (None, _) if record.awaited_requests[*position].has_device(device) => {
                    moved_requests.push(*position);
                }
                (None, _) => {}
            }
        }
        let Some(mut staying_device) = staying_device else {
            continue;
        };
        // A device that the container got at its start still counts as such, so that `detach` does
        // not remove it.
        if !device.grant_origin.is_user() {
            staying_device.has_arrived_late = device.has_arrived_late;
        }
        let moved_device = &mut record.devices[index];
        moved_device
            .node_paths
            .retain(|node_path| !staying_device.node_paths.contains(node_path));
        moved_device.device_id = substitute_id.clone();
        for position in moved_requests {
            record.awaited_requests[position].device_id = Some(substitute_id.clone());
        }
        record.devices.push(staying_device);
        is_changed = true;
    }
    is_changed
}

fn list_request_classes(record: &AttachmentRecord) -> BTreeSet<ClassName> {
    let requests = record.awaited_requests.iter();
    requests.map(|request| request.class.clone()).collect()
}

/// Adds to the record the devices that an awaited request selects on the host now. Returns whether
/// the record was changed.
///
/// A request for a single device stores the id of this device. The request stays in the record and
/// is resolved again later, because another device may have the requested name then.
fn add_devices_of_request(
    record: &mut AttachmentRecord,
    awaited_request: &AwaitedRequest,
    snapshot: &HostSnapshot,
) -> bool {
    let Some(class) = snapshot.find_followed_class(&awaited_request.class) else {
        return false;
    };
    let mut is_changed = false;
    let arrived_devices = awaited_request.find_arrived_devices(class).into_iter();
    for device in arrived_devices.filter(|device| snapshot.has_nodes(device)) {
        let is_arrived_device = |recorded_device: &ContainerDevice| {
            recorded_device.class == device.class
                && (recorded_device.device_id == device.device_id
                    || snapshot.find_host_id(recorded_device).as_ref() == Some(&device.device_id))
        };
        // If the record has the device under two names, the entry with the device's id has the
        // rules.
        let mut devices = record.devices.iter();
        let index = devices
            .position(|recorded_device| recorded_device.device_ref() == device.device_ref())
            .or_else(|| record.devices.iter().position(is_arrived_device));
        let recorded_id =
            if let Some(recorded_device) = index.map(|index| &mut record.devices[index]) {
                // The record already has this device. If the request selects it for the first time,
                // the container has requested the device by a second name. Then the node paths of
                // this name are added.
                if !awaited_request.requests_all_devices()
                    && !awaited_request.has_device(recorded_device)
                {
                    recorded_device.add_node_paths(&device.node_paths);
                }
                recorded_device.device_id.clone()
            } else if has_other_device_by_id(awaited_request, &device, record)
                || record.devices.len() >= MAX_RECORDED_DEVICES
            {
                continue;
            } else {
                let id = device.device_id.clone();
                record.devices.push(device);
                is_changed = true;
                id
            };
        if awaited_request.requests_all_devices() {
            continue;
        }
        let mut requests = record.awaited_requests.iter_mut();
        let request = requests.find(|request| request.is_same_request(awaited_request));
        if let Some(request) =
            request.filter(|request| request.device_id.as_ref() != Some(&recorded_id))
        {
            request.device_id = Some(recorded_id);
            is_changed = true;
        }
    }
    is_changed
}

/// Reports whether a request already has a device that only its id identifies, so that
/// `arrived_device` is a different device. This is the case if the request names a node whose name
/// is not stable, such as `/dev/ttyUSB0`. The next device with this node is not the requested one.
fn has_other_device_by_id(
    request: &AwaitedRequest,
    arrived_device: &ContainerDevice,
    record: &AttachmentRecord,
) -> bool {
    let mut devices = record.devices.iter();
    arrived_device.name.is_none()
        && devices.any(|device| request.has_device(device) && device.name.is_none())
}
