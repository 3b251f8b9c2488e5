//! Collects the devices of one resource during a scan.

use std::sync::Arc;

use device_class::discover::Device;

use super::message_budget::MessageBudget;
use super::resource::{AdvertisedDevice, ResourceProperties};

pub(super) struct ResourceDevices {
    pub(super) properties: Arc<ResourceProperties>,
    pub(super) devices: Vec<AdvertisedDevice>,
    message_budget: MessageBudget,
    /// The number of devices and shares that are not advertised, because the ListAndWatch message
    /// would exceed the kubelet's size limit.
    pub(super) omitted_count: usize,
}

impl ResourceDevices {
    pub(super) fn new(properties: Arc<ResourceProperties>) -> Self {
        ResourceDevices {
            properties,
            devices: Vec::new(),
            message_budget: MessageBudget::new(),
            omitted_count: 0,
        }
    }

    pub(super) fn add(&mut self, device: Device) {
        // A class can have millions of shares. After the first share that does not fit into the
        // message, all further shares are only counted.
        if self.omitted_count > 0 {
            self.omitted_count += device.replicas.map_or(1, usize::from);
            return;
        }
        for share in split_into_shares(device) {
            if self.omitted_count == 0 && self.message_budget.reserve(&share) {
                self.devices.push(share);
            } else {
                self.omitted_count += 1;
            }
        }
    }
}

/// Converts a device to the entries to advertise: one for the device, or one for each of its
/// shares.
fn split_into_shares(device: Device) -> Vec<AdvertisedDevice> {
    let is_shared = device.replicas.is_some();
    let connections = Arc::new(device.connections.clone());
    let shared_device_id = is_shared.then(|| Arc::new(device.id.clone()));
    let env = Arc::new(device.env.clone());
    let to_share = |id| AdvertisedDevice {
        id,
        health: device.health.clone(),
        numa_node: device.numa,
        group: device.group.clone(),
        connections: Arc::clone(&connections),
        shared_device_id: shared_device_id.clone(),
        env: Arc::clone(&env),
    };
    device.offered_ids().into_iter().map(to_share).collect()
}
