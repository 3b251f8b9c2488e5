//! Devices that containers were waiting for, and that the host has now.

use device_class::config::Config;

use crate::live::LiveError;
use crate::live::reconcile::HostSnapshot;
use crate::live::record::{AttachmentRecord, AwaitedDevice};
use crate::oci::Bundle;
use crate::planner;

/// The most devices of one container to which arrivals are added. A device that comes back with
/// another id each time must not let the record grow for ever.
const MAX_DEVICES: usize = 256;

impl AttachmentRecord {
    /// Returns the record as it is once the container has the devices that have come.
    pub(in crate::live) fn with_arrivals(&self, snapshot: &HostSnapshot) -> Self {
        let mut record = self.clone();
        for awaited in &self.waiting {
            record.fulfil(awaited, snapshot);
        }
        record
    }

    /// Moves the devices that the container waits for and that have come to its devices, if the
    /// container may still have what it requests. Returns whether there were any.
    pub(in crate::live) fn add_arrivals(
        &mut self,
        bundle: &Bundle,
        snapshot: &HostSnapshot,
        config: &Config,
    ) -> Result<bool, LiveError> {
        let mut has_any = false;
        for awaited in self.waiting.clone() {
            let Some(class) = snapshot.followed_class(&awaited.class) else {
                continue;
            };
            // As at the start of the container, when its own request was the authority.
            if planner::may_request(&class.class, bundle, config)? {
                has_any |= self.fulfil(&awaited, snapshot);
            }
        }
        Ok(has_any)
    }

    /// Adds the devices that have come. A device that is awaited by its name is awaited no longer
    /// then: it is followed from now on.
    fn fulfil(&mut self, awaited: &AwaitedDevice, snapshot: &HostSnapshot) -> bool {
        let Some(class) = snapshot.followed_class(&awaited.class) else {
            return false;
        };
        let mut has_any = false;
        let arrived = awaited.find_arrived(class).into_iter();
        for device in arrived.filter(|device| snapshot.has_nodes(device)) {
            has_any |= !awaited.is_for_all();
            let mut devices = self.devices.iter_mut();
            if let Some(known) = devices.find(|known| known.device_ref() == device.device_ref()) {
                // The container has it by another of its names.
                known.add_places(&device.places);
            } else if self.devices.len() < MAX_DEVICES {
                self.devices.push(device);
                has_any = true;
            }
        }
        if has_any && !awaited.is_for_all() {
            self.waiting.retain(|it| it != awaited);
        }
        has_any
    }
}
