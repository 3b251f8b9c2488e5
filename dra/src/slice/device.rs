//! Converts a device to its form in the API server.

use std::collections::BTreeMap;

use device_class::discover::{Device, Health};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device as Published,
    DeviceCapacity, DeviceCounterConsumption, DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::attributes;
use crate::class_devices::{ClassDevices, Whole};
use crate::names::{self, DRIVER, SHARES};

/// The fields of slices that the API server keeps. This depends on its feature gates, and it
/// drops the other fields without an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Whether taints are kept. If not, unhealthy devices are left out.
    pub taints: bool,
    /// Whether devices that several claims may have are kept. If not, each share is a device.
    pub shares: bool,
    /// Whether counters are kept, by which parts exclude each other. If not, only the parts
    /// that exist are offered.
    pub parts: bool,
    /// The effect of the taint of unhealthy devices.
    pub effect: String,
}

/// Returns a device of a class, or one entry for each of its shares.
pub(super) fn published(
    class: &ClassDevices,
    device: &Device,
    name: &str,
    form: &Form,
) -> Vec<Published> {
    let Some(taints) = taints(class, &device.health, form) else {
        return Vec::new();
    };
    let one = |name: String| Published {
        name,
        attributes: Some(attributes::build_attributes(class, device)),
        taints: taints.clone(),
        ..Published::default()
    };
    match device.replicas {
        None => vec![one(name.to_owned())],
        Some(count) if form.shares => vec![Published {
            allow_multiple_allocations: Some(true),
            capacity: Some(BTreeMap::from([(SHARES.to_owned(), shares(class, count))])),
            ..one(name.to_owned())
        }],
        Some(count) => (0..count).map(|n| one(names::share(name, n))).collect(),
    }
}

/// Returns a device and its possible parts. Each part consumes some of the device's counters,
/// and the device consumes all of them.
pub(super) fn published_whole(class: &ClassDevices, whole: &Whole, form: &Form) -> Vec<Published> {
    let consumes = |amounts: &BTreeMap<String, u64>| {
        let consumed = DeviceCounterConsumption {
            counter_set: whole.name.clone(),
            counters: counters(amounts),
            ..DeviceCounterConsumption::default()
        };
        Some(vec![consumed])
    };
    let mut all = published(class, &whole.divisible.whole, &whole.name, form);
    for device in &mut all {
        device.consumes_counters = consumes(&whole.divisible.counters);
    }
    for (name, part) in whole.parts() {
        let taints = taints(class, class.health(whole, part), form);
        all.extend(taints.map(|taints| Published {
            name: name.to_owned(),
            attributes: Some(attributes::of_part(class, whole, part)),
            consumes_counters: consumes(&part.takes),
            taints,
            ..Published::default()
        }));
    }
    all
}

/// Returns the counters of a device, which its parts consume.
pub(super) fn counter_set(whole: &Whole) -> CounterSet {
    CounterSet {
        name: whole.name.clone(),
        counters: counters(&whole.divisible.counters),
    }
}

fn counters(amounts: &BTreeMap<String, u64>) -> BTreeMap<String, Counter> {
    let counter = |(name, amount): (&String, &u64)| {
        let value = Quantity(amount.to_string());
        (name.clone(), Counter { value })
    };
    amounts.iter().map(counter).collect()
}

/// Returns the taints of a device. Returns `None` if the device is left out.
fn taints(class: &ClassDevices, health: &Health, form: &Form) -> Option<Option<Vec<DeviceTaint>>> {
    let effect = match health.is_healthy() {
        true if class.is_known => return Some(None),
        // Pods that use the device already are not evicted.
        true => "NoSchedule",
        false => &form.effect,
    };
    let taint = || DeviceTaint {
        key: format!("{DRIVER}/unhealthy"),
        effect: effect.to_owned(),
        ..DeviceTaint::default()
    };
    form.taints.then(|| Some(vec![taint()]))
}

fn shares(class: &ClassDevices, count: u16) -> DeviceCapacity {
    let quantity = |number: u16| Quantity(number.to_string());
    let most = class.class.settings.max_per_container;
    DeviceCapacity {
        value: quantity(count),
        // Without a policy, a request without a number would take all shares.
        request_policy: Some(CapacityRequestPolicy {
            default: Some(quantity(1)),
            valid_range: Some(CapacityRequestPolicyRange {
                min: quantity(1),
                max: Some(quantity(most.map_or(count, |most| most.get().min(count)))),
                step: (count > 1).then(|| quantity(1)),
            }),
            valid_values: None,
        }),
    }
}
