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
    missing: BTreeMap<(ResourceName, DeviceId), Instant>,
}

impl GracePeriod {
    pub(crate) fn new(duration: Duration) -> Self {
        GracePeriod {
            duration,
            missing: BTreeMap::new(),
        }
    }

    /// Returns the devices to advertise after a scan. `known` were advertised before, and `found`
    /// are the result of the scan at `now`. A missing device stays as unhealthy for the grace
    /// period. It is removed at once if its class is not in `classes`.
    pub(crate) fn apply(
        &mut self,
        known: &Resources,
        mut found: Resources,
        classes: &BTreeSet<ClassName>,
        now: Instant,
    ) -> Resources {
        let mut missing = BTreeMap::new();
        for (name, before) in known
            .iter()
            .filter(|(_, known)| classes.contains(&known.properties.class))
        {
            let now_there = found.get(name);
            if now_there.is_some_and(|there| there.properties.class != before.properties.class) {
                continue;
            }
            let is_there = |id: &DeviceId| {
                now_there.is_some_and(|there| there.position(id.as_str()).is_some())
            };
            let mut kept = Vec::new();
            for device in before
                .devices()
                .iter()
                .filter(|device| !is_there(&device.id))
            {
                let key = (name.clone(), device.id.clone());
                let since = *self.missing.get(&key).unwrap_or(&now);
                if now.duration_since(since) < self.duration {
                    missing.insert(key, since);
                    kept.push(mark_missing(device));
                }
            }
            if !kept.is_empty() {
                let there = now_there.map_or(&[][..], |there| there.devices());
                // Missing devices come last, so that they are the ones to be cut if the list is
                // too long.
                let mut budget = MessageBudget::new();
                let devices = there.iter().cloned().chain(kept);
                let devices = devices.filter(|device| budget.reserve(device)).collect();
                let properties = Arc::clone(&before.properties);
                let resource = Resource::new(name.clone(), properties, devices);
                found.insert(name.clone(), Arc::new(resource));
            }
        }
        self.missing = missing;
        found
    }

    /// Returns the time at which the next grace period ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.missing
            .values()
            .min()
            .map(|since| *since + self.duration)
    }
}

fn mark_missing(device: &AdvertisedDevice) -> AdvertisedDevice {
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
        assert_eq!(grace.next_end(), None);
    }

    #[test]
    fn the_devices_of_a_removed_class_are_removed_at_once() {
        let mut grace = GracePeriod::new(Duration::from_secs(60));
        let known = inventory(&["a"]);
        let advertised = grace.apply(&known, Resources::new(), &BTreeSet::new(), Instant::now());
        assert_eq!(brief(&advertised), "");
    }
}
