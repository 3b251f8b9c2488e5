//! Cancels requests of a container whose devices a user detaches.

use super::{AttachmentRecord, AwaitedRequest, ContainerDevice};

impl AttachmentRecord {
    /// Moves `cancelled_requests` from the record's awaited requests to its cancelled requests.
    ///
    /// If an awaited request is for all devices of a class, adds the ids of `detached_devices` to
    /// this request. So the container does not get these devices again.
    pub fn end_requests(
        &mut self,
        cancelled_requests: &[AwaitedRequest],
        detached_devices: &[ContainerDevice],
    ) {
        self.awaited_requests
            .retain(|request| !cancelled_requests.contains(request));
        self.cancelled_requests
            .extend(cancelled_requests.iter().cloned());
        for request in self
            .awaited_requests
            .iter_mut()
            .filter(|request| request.is_for_all())
        {
            let devices_of_class = detached_devices
                .iter()
                .filter(|device| device.class == request.class);
            for id in devices_of_class.map(|device| &device.device_id) {
                if !request.detached_ids.contains(id) {
                    request.detached_ids.push(id.clone());
                }
            }
        }
        // A device that arrived after the container's start must not be added again. So a cancelled
        // request is recorded for it, unless an awaited request for all devices of its class
        // already contains its id.
        let is_awaited = |device: &ContainerDevice| {
            let mut requests = self.awaited_requests.iter();
            requests.any(|request| request.class == device.class && request.is_for_all())
        };
        let late_devices = detached_devices
            .iter()
            .filter(|device| device.has_arrived_late && !is_awaited(device));
        let late_requests: Vec<_> = late_devices.map(AwaitedRequest::from_late_device).collect();
        self.cancelled_requests.extend(late_requests);
    }
}
