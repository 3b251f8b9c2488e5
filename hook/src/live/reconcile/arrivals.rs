//! Adds awaited devices that the host has now to attachment records. Nothing is changed in a
//! container here.

use device_class::config::Config;

use crate::live::LiveError;
use crate::live::reconcile::HostSnapshot;
use crate::live::record::{AttachmentRecord, AwaitedRequest};
use crate::oci::Bundle;
use crate::planner;

/// The maximum number of devices in a record. If a record has that many, no awaited device is added.
/// Without a limit, a device that comes back with another id each time would let the record grow for
/// ever.
const MAX_DEVICES: usize = 256;

impl AttachmentRecord {
    /// Returns a copy of the record to which the awaited devices that the host has now are added.
    pub(in crate::live) fn with_arrivals(&self, snapshot: &HostSnapshot) -> Self {
        let mut record = self.clone();
        for awaited in &self.awaited_requests {
            record.add_arrived(awaited, snapshot);
        }
        record
    }

    /// Adds the awaited devices that the host has now, if the container may still request them.
    /// Returns whether the record was changed.
    pub(in crate::live) fn add_arrivals(
        &mut self,
        bundle: &Bundle,
        snapshot: &HostSnapshot,
        config: &Config,
    ) -> Result<bool, LiveError> {
        let mut has_any = false;
        for awaited in self.awaited_requests.clone() {
            let Some(class) = snapshot.find_followed_class(&awaited.class) else {
                continue;
            };
            // As at the start of the container, its own request must be a sufficient authority.
            if planner::may_request(&class.class, bundle, config)? {
                has_any |= self.add_arrived(&awaited, snapshot);
            }
        }
        Ok(has_any)
    }

    /// Adds the devices of a request that the host has now. A request for a single device is removed
    /// then, because the device is followed from now on.
    fn add_arrived(&mut self, awaited: &AwaitedRequest, snapshot: &HostSnapshot) -> bool {
        let Some(class) = snapshot.find_followed_class(&awaited.class) else {
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
            self.awaited_requests.retain(|it| it != awaited);
        }
        has_any
    }
}
