//! Converts devices to entries of ResourceSlices.

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

/// The optional features of ResourceSlices that the API server supports. They depend on its
/// feature gates: it drops the fields of a disabled feature without an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceFeatures {
    /// Whether the API server stores taints. If not, unhealthy devices are omitted.
    pub taints: bool,
    /// Whether the API server stores that several claims may share a device. If not, each share is
    /// listed as a device.
    pub shares: bool,
    /// Whether the API server stores counters, by which overlapping parts exclude each other. If
    /// not, only existing parts are listed.
    pub parts: bool,
    /// The effect of the taint of unhealthy devices.
    pub effect: String,
}

/// Builds the entry of a device, or one entry for each of its shares.
pub(super) fn build_devices(
    class: &ClassDevices,
    device: &Device,
    name: &str,
    features: &SliceFeatures,
) -> Vec<SliceDevices> {
    let Some(taints) = health_taints(class, &device.health, features) else {
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
        Some(count) if features.shares => vec![SliceDevices {
            allow_multiple_allocations: Some(true),
            capacity: Some(BTreeMap::from([(
                SHARES.to_owned(),
                share_capacity(class, count),
            )])),
            ..build(name.to_owned())
        }],
        Some(count) => (0..count)
            .map(|n| build(names::share_name(name, n)))
            .collect(),
    }
}

/// Builds the entries of a divisible device and its possible parts. Each part consumes some of the
/// device's counters, and the device consumes all of them.
pub(super) fn build_divisible_device(
    class: &ClassDevices,
    parent: &DivisibleDevice,
    features: &SliceFeatures,
) -> Vec<SliceDevices> {
    let consumes = |amounts: &BTreeMap<String, u64>| {
        let consumed = DeviceCounterConsumption {
            counter_set: parent.name.clone(),
            counters: to_counters(amounts),
            ..DeviceCounterConsumption::default()
        };
        Some(vec![consumed])
    };
    let mut devices = build_devices(class, &parent.divisible.whole, &parent.name, features);
    for device in &mut devices {
        device.consumes_counters = consumes(&parent.divisible.counters);
    }
    for (name, part) in parent.parts() {
        let taints = health_taints(class, class.part_health(parent, part), features);
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

/// Builds the counter set of a device, which its parts consume.
pub(super) fn counter_set(device: &DivisibleDevice) -> CounterSet {
    CounterSet {
        name: device.name.clone(),
        counters: to_counters(&device.divisible.counters),
    }
}

fn to_counters(amounts: &BTreeMap<String, u64>) -> BTreeMap<String, Counter> {
    let counter = |(name, amount): (&String, &u64)| {
        let value = Quantity(amount.to_string());
        (name.clone(), Counter { value })
    };
    amounts.iter().map(counter).collect()
}

/// Builds the taints of a device. Returns `None` if the device must be omitted.
fn health_taints(
    class: &ClassDevices,
    health: &Health,
    features: &SliceFeatures,
) -> Option<Option<Vec<DeviceTaint>>> {
    let effect = if !health.is_healthy() {
        &features.effect
    } else if class.are_allocations_known {
        return Some(None);
    } else {
        // This effect does not evict pods that already use the device.
        "NoSchedule"
    };
    let taint = || DeviceTaint {
        key: format!("{DRIVER}/unhealthy"),
        effect: effect.to_owned(),
        ..DeviceTaint::default()
    };
    features.taints.then(|| Some(vec![taint()]))
}

fn share_capacity(class: &ClassDevices, count: u16) -> DeviceCapacity {
    let quantity = |number: u16| Quantity(number.to_string());
    let max_per_container = class.class.settings.max_per_container;
    DeviceCapacity {
        value: quantity(count),
        // Without this policy, a request that gives no number would consume all shares.
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
