//! Cancels requests of a container when a user detaches their devices.

use super::{AttachmentRecord, AwaitedRequest, ContainerDevice};

impl AttachmentRecord {
    /// Moves `cancelled_requests` from the record's awaited requests to its cancelled requests.
    ///
    /// Adds the ids of `detached_devices` to the awaited requests that stay, so that these requests
    /// do not add the devices again. For example, a request for all devices of a class includes
    /// them.
    pub fn cancel_requests(
        &mut self,
        cancelled_requests: &[AwaitedRequest],
        detached_devices: &[ContainerDevice],
    ) {
        // Only the class and the name of requests are compared, because `boathook follow` may have
        // recorded another device for a request in the meantime.
        let is_cancelled = |request: &AwaitedRequest| {
            let mut cancelled_requests = cancelled_requests.iter();
            cancelled_requests.any(|cancelled_request| cancelled_request.is_same_request(request))
        };
        self.awaited_requests
            .retain(|request| !is_cancelled(request));
        let new_cancelled_requests = cancelled_requests.iter().cloned();
        self.cancelled_requests
            .extend(new_cancelled_requests.map(AwaitedRequest::into_cancelled));
        for request in &mut self.awaited_requests {
            let devices_of_class = detached_devices
                .iter()
                .filter(|device| device.class == request.class);
            for id in devices_of_class.map(|device| &device.device_id) {
                if !request.detached_ids.contains(id) {
                    request.detached_ids.push(id.clone());
                }
            }
        }
        // A device that was plugged in after the container's start must not be added again. So a
        // cancelled request is recorded for it. This is not needed if its own request was
        // cancelled, or if an awaited request for all devices of its class already contains its id.
        let is_known = |device: &ContainerDevice| {
            let mut requests = self.awaited_requests.iter();
            let mut cancelled_requests = cancelled_requests.iter();
            cancelled_requests.any(|request| request.has_device(device))
                || requests
                    .any(|request| request.class == device.class && request.requests_all_devices())
        };
        let late_devices = detached_devices
            .iter()
            .filter(|device| device.has_arrived_late && !is_known(device));
        let late_requests: Vec<_> = late_devices
            .map(|device| AwaitedRequest::from_device(device).into_cancelled())
            .collect();
        self.cancelled_requests.extend(late_requests);
    }
}
