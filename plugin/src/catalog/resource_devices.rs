//! Collects the devices of one resource during a scan.

use std::sync::Arc;

use device_class::discover::Device;

use super::message_budget::MessageBudget;
use super::resource::{AdvertisedDevice, ResourceProperties};

pub(super) struct ResourceDevices {
    pub(super) properties: Arc<ResourceProperties>,
    pub(super) devices: Vec<AdvertisedDevice>,
    budget: MessageBudget,
    /// The number of devices that do not fit into one ListAndWatch message.
    pub(super) left_out: usize,
}

impl ResourceDevices {
    pub(super) fn new(properties: Arc<ResourceProperties>) -> Self {
        ResourceDevices {
            properties,
            devices: Vec::new(),
            budget: MessageBudget::new(),
            left_out: 0,
        }
    }

    pub(super) fn add(&mut self, device: Device) {
        // A class can have millions of replicas. Once one does not fit, the others are only
        // counted.
        if self.left_out > 0 {
            self.left_out += device.replicas.map_or(1, usize::from);
            return;
        }
        for share in split_into_shares(device) {
            if self.left_out == 0 && self.budget.reserve(&share) {
                self.devices.push(share);
            } else {
                self.left_out += 1;
            }
        }
    }
}

/// Converts a device to its advertised form, or to one entry for each of its shares.
fn split_into_shares(device: Device) -> Vec<AdvertisedDevice> {
    let shared = device.replicas.is_some();
    let connections = Arc::new(device.connections.clone());
    let share_of = shared.then(|| Arc::new(device.id.clone()));
    let env = Arc::new(device.env.clone());
    let share = |id| AdvertisedDevice {
        id,
        health: device.health.clone(),
        numa: device.numa,
        group: device.group.clone(),
        connections: Arc::clone(&connections),
        share_of: share_of.clone(),
        env: Arc::clone(&env),
    };
    device.offered_ids().into_iter().map(share).collect()
}
