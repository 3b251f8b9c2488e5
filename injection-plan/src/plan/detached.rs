//! Removes devices from the plan of a running container. They are devices for which the container
//! waited, and `boathook detach` took them away later.

use std::collections::BTreeSet;

use device_class::name::{ClassName, DeviceId, DeviceRef};

use super::{Grant, InjectionPlan, InjectionStep};
use crate::request::AwaitedDevice;

/// A container's request for awaited devices that `boathook detach` has ended, wholly or for some
/// devices. The request stays ended until the container is restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedRequest {
    pub class: ClassName,
    pub awaited_device: AwaitedDevice,
    /// The ids of the devices that arrived for this request and were later detached.
    pub devices: Vec<DeviceId>,
    /// Whether the whole request has ended. If it has not ended, the container still gets every
    /// device of the class that arrives, except `devices`.
    pub has_ended: bool,
}

impl DetachedRequest {
    fn matches_device(&self, grant: &Grant, id: &DeviceId) -> bool {
        // If the request has not ended, only `devices` are detached. The requested name may now
        // select another device, which the container keeps.
        let has_requested_name = match &self.awaited_device {
            _ if !self.has_ended => false,
            AwaitedDevice::All => false,
            AwaitedDevice::Device { name, .. } => grant
                .names
                .get(id)
                .is_some_and(|requested_name| requested_name.to_name_text() == name.to_name_text()),
        };
        has_requested_name || self.devices.contains(id)
    }

    fn has_ended_request_for(&self, awaited: &AwaitedDevice) -> bool {
        match (&self.awaited_device, awaited) {
            _ if !self.has_ended => false,
            (AwaitedDevice::All, AwaitedDevice::All) => true,
            (
                AwaitedDevice::Device {
                    name: ended_name, ..
                },
                AwaitedDevice::Device { name, .. },
            ) => ended_name.to_name_text() == name.to_name_text() || ended_name.text == name.text,
            _ => false,
        }
    }
}

impl InjectionPlan {
    /// Removes from the plan the devices that a user has detached. The awaited devices of ended
    /// requests are removed, too. Each grant keeps the names of its removed devices for messages. A
    /// device stays in the plan if the user has attached it again.
    pub fn remove_detached_devices(&mut self, detached_requests: &[DetachedRequest]) {
        let mut removed_devices: BTreeSet<DeviceRef> = BTreeSet::new();
        for grant in &mut self.grants {
            if grant.grant_origin.is_user() {
                continue;
            }
            let requests = detached_requests.iter();
            for detached_request in
                requests.filter(|detached_request| detached_request.class == grant.class)
            {
                let device_ids: Vec<DeviceId> = grant
                    .devices
                    .iter()
                    .filter(|id| detached_request.matches_device(grant, id))
                    .cloned()
                    .collect();
                grant
                    .awaited_devices
                    .retain(|awaited| !detached_request.has_ended_request_for(awaited));
                let awaited_devices = &grant.awaited_devices;
                let is_awaited = |name: &String| {
                    let mut devices = awaited_devices.iter();
                    devices.any(|awaited| awaited.to_request_text() == *name)
                };
                grant.similar_devices.retain(|name, _| is_awaited(name));
                grant.devices.retain(|id| !device_ids.contains(id));
                if detached_request.has_ended {
                    grant
                        .detached_names
                        .push(detached_request.awaited_device.to_request_text());
                } else {
                    let names = device_ids.iter().map(|id| id.as_str().to_owned());
                    grant.detached_names.extend(names);
                }
                let class = grant.class.clone();
                removed_devices.extend(device_ids.iter().map(|id| DeviceRef::new(&class, id)));
            }
        }
        for grant in self
            .grants
            .iter()
            .filter(|grant| grant.grant_origin.is_user())
        {
            for device in grant.device_refs() {
                removed_devices.remove(&device);
            }
        }
        let steps = std::mem::take(&mut self.steps).into_iter();
        let is_removed = |step: &InjectionStep| {
            let mut owners = step.owners.iter();
            let is_removed_device = |owner: &crate::plan::StepOwner| {
                owner
                    .device()
                    .is_some_and(|device| removed_devices.contains(device))
            };
            !step.owners.is_empty() && owners.all(is_removed_device)
        };
        self.steps = steps.filter(|step| !is_removed(step)).collect();
    }
}
