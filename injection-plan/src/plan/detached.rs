//! Devices that a running container was waiting for, until `boathook detach` took them away.

use std::collections::BTreeSet;

use device_class::name::{ClassName, DeviceId, DeviceRef};

use super::{Grant, InjectionPlan, InjectionStep};
use crate::request::Awaited;

/// A part of a container's request that `boathook detach` ended until the container is started
/// again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedRequest {
    pub class: ClassName,
    pub awaited: Awaited,
    /// The devices that had come, by the ids that they had.
    pub devices: Vec<DeviceId>,
    /// Whether the container does not wait any more. Otherwise it waits for all devices of the
    /// class except `devices`.
    pub has_ended: bool,
}

impl DetachedRequest {
    fn means_device(&self, grant: &Grant, id: &DeviceId) -> bool {
        let is_named = match &self.awaited {
            Awaited::All => false,
            Awaited::Device { name, .. } => grant
                .names
                .get(id)
                .is_some_and(|known| known.name_text() == name.name_text()),
        };
        is_named || self.devices.contains(id)
    }

    fn means_awaited(&self, awaited: &Awaited) -> bool {
        match (&self.awaited, awaited) {
            _ if !self.has_ended => false,
            (Awaited::All, Awaited::All) => true,
            (Awaited::Device { name: known, .. }, Awaited::Device { name, .. }) => {
                known.name_text() == name.name_text() || known.text == name.text
            }
            _ => false,
        }
    }
}

impl InjectionPlan {
    /// Removes from the plan of a running container what was detached from it, and notes it in the
    /// grants. A device that a user attached since stays.
    pub fn leave_out_detached(&mut self, detached: &[DetachedRequest]) {
        let mut removed: BTreeSet<DeviceRef> = BTreeSet::new();
        for grant in &mut self.grants {
            if grant.given_by.is_user() {
                continue;
            }
            for one in detached.iter().filter(|one| one.class == grant.class) {
                let taken: Vec<DeviceId> = grant
                    .devices
                    .iter()
                    .filter(|id| one.means_device(grant, id))
                    .cloned()
                    .collect();
                grant.waiting.retain(|it| !one.means_awaited(it));
                let waiting = &grant.waiting;
                let is_awaited = |name: &String| waiting.iter().any(|it| it.to_request() == *name);
                grant.similar.retain(|name, _| is_awaited(name));
                grant.devices.retain(|id| !taken.contains(id));
                if one.has_ended {
                    grant.detached.push(one.awaited.to_request());
                } else {
                    let labels = taken.iter().map(|id| id.as_str().to_owned());
                    grant.detached.extend(labels);
                }
                let class = grant.class.clone();
                removed.extend(taken.iter().map(|id| DeviceRef::new(&class, id)));
            }
        }
        for grant in self.grants.iter().filter(|grant| grant.given_by.is_user()) {
            for device in grant.device_refs() {
                removed.remove(&device);
            }
        }
        let steps = std::mem::take(&mut self.steps).into_iter();
        let is_removed = |step: &InjectionStep| {
            let mut users = step.users.iter();
            let is_of_removed = |user: &crate::plan::StepUser| {
                user.device().is_some_and(|device| removed.contains(device))
            };
            !step.users.is_empty() && users.all(is_of_removed)
        };
        self.steps = steps.filter(|step| !is_removed(step)).collect();
    }
}
