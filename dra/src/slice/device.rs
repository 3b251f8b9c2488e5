//! Converts a device to its form in the API server.

use std::collections::BTreeMap;

use device_class::discover::{Device, Health};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device as SliceDevices,
    DeviceCapacity, DeviceCounterConsumption, DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::attributes;
use crate::class_devices::{ClassDevices, DivisibleDevice};
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
) -> Vec<SliceDevices> {
    let Some(taints) = taints(class, &device.health, form) else {
        return Vec::new();
    };
    let build = |name: String| SliceDevices {
        name,
        attributes: Some(attributes::build_attributes(class, device)),
        taints: taints.clone(),
        ..SliceDevices::default()
    };
    match device.replicas {
        None => vec![build(name.to_owned())],
        Some(count) if form.shares => vec![SliceDevices {
            allow_multiple_allocations: Some(true),
            capacity: Some(BTreeMap::from([(SHARES.to_owned(), shares(class, count))])),
            ..build(name.to_owned())
        }],
        Some(count) => (0..count).map(|n| build(names::share(name, n))).collect(),
    }
}

/// Returns a device and its possible parts. Each part consumes some of the device's counters,
/// and the device consumes all of them.
pub(super) fn build_divisible_device(
    class: &ClassDevices,
    parent: &DivisibleDevice,
    form: &Form,
) -> Vec<SliceDevices> {
    let consumes = |amounts: &BTreeMap<String, u64>| {
        let consumed = DeviceCounterConsumption {
            counter_set: parent.name.clone(),
            counters: counters(amounts),
            ..DeviceCounterConsumption::default()
        };
        Some(vec![consumed])
    };
    let mut devices = published(class, &parent.divisible.whole, &parent.name, form);
    for device in &mut devices {
        device.consumes_counters = consumes(&parent.divisible.counters);
    }
    for (name, part) in parent.parts() {
        let taints = taints(class, class.part_health(parent, part), form);
        devices.extend(taints.map(|taints| SliceDevices {
            name: name.to_owned(),
            attributes: Some(attributes::build_part_attributes(class, parent, part)),
            consumes_counters: consumes(&part.takes),
            taints,
            ..SliceDevices::default()
        }));
    }
    devices
}

/// Returns the counters of a device, which its parts consume.
pub(super) fn counter_set(device: &DivisibleDevice) -> CounterSet {
    CounterSet {
        name: device.name.clone(),
        counters: counters(&device.divisible.counters),
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
    let max_per_container = class.class.settings.max_per_container;
    DeviceCapacity {
        value: quantity(count),
        // Without a policy, a request without a number would take all shares.
        request_policy: Some(CapacityRequestPolicy {
            default: Some(quantity(1)),
            valid_range: Some(CapacityRequestPolicyRange {
                min: quantity(1),
                max: Some(quantity(
                    max_per_container.map_or(count, |max| max.get().min(count)),
                )),
                step: (count > 1).then(|| quantity(1)),
            }),
            valid_values: None,
        }),
    }
}
