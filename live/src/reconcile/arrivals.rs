//! Adds awaited devices to attachment records when they have arrived on the host. This module
//! changes no container.

use device_class::config::Config;
use hook::attachment::{AttachmentRecord, AwaitedRequest};
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
        // The container's own request must still authorize the container, as it did at the
        // container's start.
        if planner::may_request(&class.class, bundle, config)? {
            is_changed |= add_devices_of_request(record, &request, snapshot);
        }
    }
    Ok(is_changed)
}

/// Adds the devices of an awaited request that the host has now. Returns whether the record was
/// changed.
///
/// If the request is for a single device, the request is then removed, because the record has
/// the device.
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
        is_changed |= !awaited_request.is_for_all();
        let mut devices = record.devices.iter_mut();
        if let Some(recorded_device) =
            devices.find(|recorded_device| recorded_device.device_ref() == device.device_ref())
        {
            // The record already has this device, because the container requested it by another
            // name as well.
            recorded_device.add_node_paths(&device.node_paths);
        } else if record.devices.len() < MAX_RECORDED_DEVICES {
            record.devices.push(device);
            is_changed = true;
        }
    }
    if is_changed && !awaited_request.is_for_all() {
        record
            .awaited_requests
            .retain(|request| request != awaited_request);
    }
    is_changed
}
