//! Keeps a missing device as unhealthy for a grace period before it is removed, so that the reset
//! of a card or the reload of a driver does not change the node's capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::discover::Health;
use device_class::name::{ClassName, DeviceId, ResourceName};

use super::Resources;
use super::message_budget::MessageBudget;
use super::resource::{AdvertisedDevice, Resource};

#[derive(Debug)]
pub(crate) struct GracePeriod {
    duration: Duration,
    /// For each missing device, the time of the first scan that did not find it.
    first_missed_times: BTreeMap<(ResourceName, DeviceId), Instant>,
}

impl GracePeriod {
    pub(crate) fn new(duration: Duration) -> Self {
        GracePeriod {
            duration,
            first_missed_times: BTreeMap::new(),
        }
    }

    /// Returns the resources to advertise after a scan. `previous_resources` were advertised until
    /// now, and `scanned_resources` are the result of the scan at `now`. A missing device stays in
    /// the list as unhealthy for the grace period. If its class is not in `classes`, it is removed
    /// at once.
    pub(crate) fn apply(
        &mut self,
        previous_resources: &Resources,
        mut scanned_resources: Resources,
        classes: &BTreeSet<ClassName>,
        now: Instant,
    ) -> Resources {
        let mut first_missed_times = BTreeMap::new();
        for (name, old_resource) in previous_resources
            .iter()
            .filter(|(_, resource)| classes.contains(&resource.properties.class))
        {
            let new_resource = scanned_resources.get(name);
            if new_resource.is_some_and(|new_resource| {
                new_resource.properties.class != old_resource.properties.class
            }) {
                continue;
            }
            let is_present = |id: &DeviceId| {
                new_resource
                    .is_some_and(|new_resource| new_resource.find_position(id.as_str()).is_some())
            };
            let mut missing_devices = Vec::new();
            for device in old_resource
                .devices()
                .iter()
                .filter(|device| !is_present(&device.id))
            {
                let key = (name.clone(), device.id.clone());
                let start = *self.first_missed_times.get(&key).unwrap_or(&now);
                if now.duration_since(start) < self.duration {
                    first_missed_times.insert(key, start);
                    missing_devices.push(mark_device_missing(device));
                }
            }
            if !missing_devices.is_empty() {
                let present_devices =
                    new_resource.map_or(&[][..], |new_resource| new_resource.devices());
                // The missing devices come last, so that they are dropped first if the list exceeds
                // the size limit of a message.
                let mut budget = MessageBudget::new();
                let all_devices = present_devices.iter().cloned().chain(missing_devices);
                let devices = all_devices
                    .filter(|device| budget.reserve(device))
                    .collect();
                let properties = Arc::clone(&old_resource.properties);
                let resource = Resource::new(name.clone(), properties, devices);
                scanned_resources.insert(name.clone(), Arc::new(resource));
            }
        }
        self.first_missed_times = first_missed_times;
        scanned_resources
    }

    /// Returns the earliest time at which the grace period of a missing device ends.
    pub(crate) fn next_end_time(&self) -> Option<Instant> {
        let earliest_time = self.first_missed_times.values().min();
        earliest_time.map(|time| *time + self.duration)
    }
}

fn mark_device_missing(device: &AdvertisedDevice) -> AdvertisedDevice {
    let reason = "the device has disappeared".to_owned();
    AdvertisedDevice {
        health: Health::Unhealthy { reason },
        ..device.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::fixture::{device, resource};

    fn inventory(ids: &[&str]) -> Resources {
        let npus = resource(ids.iter().map(|id| device(id)).collect());
        if ids.is_empty() {
            Resources::new()
        } else {
            [(npus.name.clone(), Arc::new(npus))].into()
        }
    }

    fn brief(inventory: &Resources) -> String {
        let devices = inventory.values().flat_map(|resource| resource.devices());
        let words = devices.map(|d| format!("{}{}", d.id, if d.is_healthy() { "" } else { "!" }));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_missing_device_is_unhealthy_then_removed_and_may_return() {
        let start = Instant::now();
        let classes = BTreeSet::from([resource(vec![]).properties.class.clone()]);
        let mut grace = GracePeriod::new(Duration::from_secs(60));
        let mut known = Resources::new();
        for (second, found, wanted) in [
            (0, &["a", "b"][..], "a b"),
            (10, &["a"], "a b!"),
            (60, &["a"], "a b!"),
            (69, &["a", "b"], "a b"),
            (70, &["a"], "a b!"),
            (80, &[], "a! b!"),
            (130, &[], "a!"),
            (140, &[], ""),
        ] {
            let now = start + Duration::from_secs(second);
            known = grace.apply(&known, inventory(found), &classes, now);
            assert_eq!(brief(&known), wanted, "second {second}");
        }
        assert_eq!(grace.next_end_time(), None);
    }

    #[test]
    fn the_devices_of_a_removed_class_are_removed_at_once() {
        let mut grace = GracePeriod::new(Duration::from_secs(60));
        let known = inventory(&["a"]);
        let advertised = grace.apply(&known, Resources::new(), &BTreeSet::new(), Instant::now());
        assert_eq!(brief(&advertised), "");
    }
}
