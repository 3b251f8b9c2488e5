//! Adds awaited devices to attachment records when they have arrived on the host. This module
//! changes no container.

use device_class::config::Config;
use hook::attachment::{AttachmentRecord, AwaitedRequest, ContainerDevice};
use hook::oci::Bundle;
use hook::planner;

use crate::LiveError;
use crate::reconcile::HostSnapshot;

/// The maximum number of devices in an attachment record. If a record has this many devices, no
/// awaited device is added to it. Without this limit, the record would grow endlessly if a device
/// gets a new id each time it is plugged in.
const MAX_RECORDED_DEVICES: usize = 256;

/// Returns a copy of a record. The copy also has the awaited devices that the host has now.
pub(crate) fn copy_with_arrived_devices(
    record: &AttachmentRecord,
    snapshot: &HostSnapshot,
) -> AttachmentRecord {
    let mut new_record = record.clone();
    for request in &record.awaited_requests {
        add_devices_of_request(&mut new_record, request, snapshot);
    }
    new_record
}

/// Adds to a record the awaited devices that the host has now, if the container may still
/// request them. Returns whether the record was changed.
pub(crate) fn add_arrived_devices(
    record: &mut AttachmentRecord,
    bundle: &Bundle,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<bool, LiveError> {
    let mut is_changed = false;
    for request in record.awaited_requests.clone() {
        let Some(class) = snapshot.find_followed_class(&request.class) else {
            continue;
        };
        let mut new_record = record.clone();
        // The container's own request must still authorize the container, as it did at the
        // container's start.
        if add_devices_of_request(&mut new_record, &request, snapshot)
            && planner::may_request(&class.class, bundle, config)?
        {
            *record = new_record;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Adds the devices of an awaited request that the host has now. Returns whether the record was
/// changed.
///
/// If the request is for a single device, the request gets the id of this device. The request is
/// resolved again later, because another device may have the requested name then.
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
        let is_arrived_device = |recorded_device: &&mut ContainerDevice| {
            recorded_device.class == device.class
                && (recorded_device.device_id == device.device_id
                    || snapshot.find_present_id(recorded_device).as_ref()
                        == Some(&device.device_id))
        };
        let recorded_id =
            if let Some(recorded_device) = record.devices.iter_mut().find(is_arrived_device) {
                // The record already has this device. If the device is new for this request, the
                // container requested the device by another name as well.
                if !awaited_request.is_for_all() && !awaited_request.has_device(recorded_device) {
                    recorded_device.add_node_paths(&device.node_paths);
                }
                recorded_device.device_id.clone()
            } else if is_known_by_id(awaited_request, &device, record)
                || record.devices.len() >= MAX_RECORDED_DEVICES
            {
                continue;
            } else {
                let id = device.device_id.clone();
                record.devices.push(device);
                is_changed = true;
                id
            };
        if awaited_request.is_for_all() {
            continue;
        }
        let mut requests = record.awaited_requests.iter_mut();
        let request = requests.find(|request| request.is_same_request(awaited_request));
        if let Some(request) = request.filter(|it| it.device_id.as_ref() != Some(&recorded_id)) {
            request.device_id = Some(recorded_id);
            is_changed = true;
        }
    }
    is_changed
}

/// Reports whether the device of a request is recognized by its id, and `arrived_device` is another
/// one. This is the case if the request names a node whose name is not stable, such as
/// `/dev/ttyUSB0`. The next device with this node is not the requested one.
fn is_known_by_id(
    request: &AwaitedRequest,
    arrived_device: &ContainerDevice,
    record: &AttachmentRecord,
) -> bool {
    let mut devices = record.devices.iter();
    arrived_device.name.is_none()
        && devices.any(|device| request.has_device(device) && device.name.is_none())
}
