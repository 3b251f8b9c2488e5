//! Adds awaited devices to attachment records when they have arrived on the host. This module
//! changes no container.

use device_class::config::Config;

use crate::live::LiveError;
use crate::live::reconcile::HostSnapshot;
use crate::live::record::{AttachmentRecord, AwaitedRequest};
use crate::oci::Bundle;
use crate::planner;

/// The maximum number of devices in an attachment record. If a record has this many devices, no
/// awaited device is added to it. Without this limit, the record would grow endlessly if a device
/// gets a new id each time it is plugged in.
const MAX_RECORDED_DEVICES: usize = 256;

impl AttachmentRecord {
    /// Returns a copy of the record. The copy also has the awaited devices that the host has now.
    pub(in crate::live) fn with_arrived_devices(&self, snapshot: &HostSnapshot) -> Self {
        let mut record = self.clone();
        for request in &self.awaited_requests {
            record.add_devices_of_request(request, snapshot);
        }
        record
    }

    /// Adds to the record the awaited devices that the host has now, if the container may still
    /// request them. Returns whether the record was changed.
    pub(in crate::live) fn add_arrived_devices(
        &mut self,
        bundle: &Bundle,
        snapshot: &HostSnapshot,
        config: &Config,
    ) -> Result<bool, LiveError> {
        let mut is_changed = false;
        for request in self.awaited_requests.clone() {
            let Some(class) = snapshot.find_followed_class(&request.class) else {
                continue;
            };
            // The container's own request must still authorize the container, as it did at the
            // container's start.
            if planner::may_request(&class.class, bundle, config)? {
                is_changed |= self.add_devices_of_request(&request, snapshot);
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
        &mut self,
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
            let mut devices = self.devices.iter_mut();
            if let Some(recorded_device) =
                devices.find(|recorded_device| recorded_device.device_ref() == device.device_ref())
            {
                // The record already has this device, because the container requested it by another
                // name as well.
                recorded_device.add_node_paths(&device.node_paths);
            } else if self.devices.len() < MAX_RECORDED_DEVICES {
                self.devices.push(device);
                is_changed = true;
            }
        }
        if is_changed && !awaited_request.is_for_all() {
            self.awaited_requests
                .retain(|request| request != awaited_request);
        }
        is_changed
    }
}
