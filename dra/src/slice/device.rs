//! Builds the entries of ResourceSlices for devices, shares and parts.

use std::collections::BTreeMap;

use device_class::discover::{Device, Health};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device as SliceDevice,
    DeviceCapacity, DeviceCounterConsumption, DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::attributes;
use crate::class_devices::{ClassDevices, DivisibleDevice};
use crate::names::{self, DRIVER, SHARES_CAPACITY};

/// The optional features of ResourceSlices that the API server supports. They depend on the API
/// server's feature gates: it drops the fields of a disabled feature without an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceFeatures {
    /// Whether the API server stores taints of devices. Without taints, unhealthy devices are
    /// omitted from the slices.
    pub supports_taints: bool,
    /// Whether the API server stores the fields by which several claims can share a device. Without
    /// them, each share is listed as a separate device.
    pub supports_shares: bool,
    /// Whether the API server stores counters. Counters prevent the scheduler from allocating
    /// overlapping parts at the same time. Without counters, only existing parts are listed.
    pub supports_parts: bool,
    /// The value of `effect` in the taints of unhealthy devices.
    pub taint_effect: String,
}

/// Builds the entries of a device: one, or one for each share if the API server does not store the
/// fields for shared devices. Returns no entries if the device is unhealthy and the API server does
/// not store taints.
pub(super) fn build_devices(
    class: &ClassDevices,
    device: &Device,
    name: &str,
    features: &SliceFeatures,
) -> Vec<SliceDevice> {
    let Some(taints) = build_health_taints(class, &device.health, features) else {
        return Vec::new();
    };
    let build_entry = |name: String| SliceDevice {
        name,
        attributes: Some(attributes::build_attributes(class, device)),
        taints: taints.clone(),
        ..SliceDevice::default()
    };
    match device.replicas {
        None => vec![build_entry(name.to_owned())],
        Some(count) if features.supports_shares => vec![SliceDevice {
            allow_multiple_allocations: Some(true),
            capacity: Some(BTreeMap::from([(
                SHARES_CAPACITY.to_owned(),
                build_share_capacity(class, count),
            )])),
            ..build_entry(name.to_owned())
        }],
        Some(count) => (0..count)
            .map(|number| build_entry(names::build_share_name(name, number)))
            .collect(),
    }
}

/// Builds the entries of a divisible device and of its possible parts. A part consumes some of the
/// device's counters, and the whole device consumes all of them.
pub(super) fn build_divisible_device(
    class: &ClassDevices,
    parent: &DivisibleDevice,
    features: &SliceFeatures,
) -> Vec<SliceDevice> {
    let build_consumption = |amounts: &BTreeMap<String, u64>| {
        let consumption = DeviceCounterConsumption {
            counter_set: parent.name.clone(),
            counters: to_counters(amounts),
            ..DeviceCounterConsumption::default()
        };
        Some(vec![consumption])
    };
    let mut entries = build_devices(class, &parent.division.whole_device, &parent.name, features);
    for entry in &mut entries {
        entry.consumes_counters = build_consumption(&parent.division.counters);
    }
    for (name, part) in parent.parts() {
        let taints = build_health_taints(class, class.part_health(parent, part), features);
        entries.extend(taints.map(|taints| SliceDevice {
            name: name.to_owned(),
            attributes: Some(attributes::build_part_attributes(class, parent, part)),
            consumes_counters: build_consumption(&part.consumed_counters),
            taints,
            ..SliceDevice::default()
        }));
    }
    entries
}

/// Builds the counter set of a divisible device. An allocated part consumes some of these counters,
/// and the whole device consumes all of them.
pub(super) fn build_counter_set(device: &DivisibleDevice) -> CounterSet {
    CounterSet {
        name: device.name.clone(),
        counters: to_counters(&device.division.counters),
    }
}

fn to_counters(amounts: &BTreeMap<String, u64>) -> BTreeMap<String, Counter> {
    let counter = |(name, amount): (&String, &u64)| {
        let value = Quantity(amount.to_string());
        (name.clone(), Counter { value })
    };
    amounts.iter().map(counter).collect()
}

/// Builds the taints of a device. A device that may be allocated has no taint. Returns `None` if
/// the device needs a taint but the API server does not store taints; such a device must be
/// omitted.
fn build_health_taints(
    class: &ClassDevices,
    health: &Health,
    features: &SliceFeatures,
) -> Option<Option<Vec<DeviceTaint>>> {
    let effect = if !health.is_healthy() {
        &features.taint_effect
    } else if class.are_allocations_known {
        return Some(None);
    } else {
        // The allocations of the device plugin are unknown, so a running pod may use the device.
        // Therefore the taint must not evict pods.
        "NoSchedule"
    };
    let build_taint = || DeviceTaint {
        key: format!("{DRIVER}/unhealthy"),
        effect: effect.to_owned(),
        ..DeviceTaint::default()
    };
    features.supports_taints.then(|| Some(vec![build_taint()]))
}

fn build_share_capacity(class: &ClassDevices, count: u16) -> DeviceCapacity {
    let to_quantity = |number: u16| Quantity(number.to_string());
    let max_per_container = class.class.settings.max_per_container;
    DeviceCapacity {
        value: to_quantity(count),
        // Without this policy, a request that names no number of shares would consume all of them.
        request_policy: Some(CapacityRequestPolicy {
            default: Some(to_quantity(1)),
            valid_range: Some(CapacityRequestPolicyRange {
                min: to_quantity(1),
                max: Some(to_quantity(
                    max_per_container.map_or(count, |max| max.get().min(count)),
                )),
                step: (count > 1).then(|| to_quantity(1)),
            }),
            valid_values: None,
        }),
    }
}
