//! The devices of an allocation result, as this node knows them.

use super::allocation::AllocatedDevice;
use super::record::{PendingDevice, PreparedDevice};
use crate::class_devices::ClassDevices;

/// A device of an allocation result, together with its class on this node.
pub(super) struct ResolvedDevice<'a> {
    pub(super) allocated_device: &'a AllocatedDevice,
    pub(super) class: &'a ClassDevices,
    /// The device's entry in the claim record. `None` means that the device is not ready yet,
    /// because the part must be created first or existing parts must be removed.
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
