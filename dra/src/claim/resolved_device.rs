//! Combines each device of an allocation result with its class and its id on this node.

use super::allocation::AllocatedDevice;
use super::record::{PendingDevice, PreparedDevice};
use crate::class_devices::ClassDevices;

/// A device of an allocation result, together with its class on this node.
pub(super) struct ResolvedDevice<'a> {
    pub(super) allocated_device: &'a AllocatedDevice,
    pub(super) class: &'a ClassDevices,
    /// The entry for the device in the claim record. `None` means that the device is not ready: its
    /// part must be created, or existing parts of it must be removed.
    pub(super) prepared_device: Option<PreparedDevice>,
}

impl ResolvedDevice<'_> {
    pub(super) fn to_pending_device(&self) -> PendingDevice {
        PendingDevice {
            pool: self.allocated_device.pool.clone(),
            device: self.allocated_device.device.clone(),
            class: self.class.class.name.clone(),
        }
    }
}
