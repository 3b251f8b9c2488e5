//! One device, as the API server has it.

use std::collections::BTreeMap;

use device_class::discover::Device;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device as Published, DeviceCapacity,
    DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::attributes;
use crate::inventory::ClassDevices;
use crate::names::{self, DRIVER};

/// The capacity of a shared device: how many containers may have it at once.
pub(crate) const SHARES: &str = "shares";

/// What the API server keeps of a slice. Its feature gates decide, and it drops the rest
/// without a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Whether it keeps taints. If not, unhealthy devices are left out.
    pub taints: bool,
    /// Whether it keeps devices that several claims may have. If not, each share is a
    /// device.
    pub shares: bool,
    /// The effect of the taint of unhealthy devices.
    pub effect: String,
}

/// A device of a class, or each of its shares.
pub(super) fn published(
    class: &ClassDevices,
    device: &Device,
    name: &str,
    form: &Form,
) -> Vec<Published> {
    if !device.health.is_healthy() && !form.taints {
        return Vec::new();
    }
    let taint = || DeviceTaint {
        key: format!("{DRIVER}/unhealthy"),
        effect: form.effect.clone(),
        ..DeviceTaint::default()
    };
    let one = |name: String| Published {
        name,
        attributes: Some(attributes::of(class, device)),
        taints: (!device.health.is_healthy()).then(|| vec![taint()]),
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

fn shares(class: &ClassDevices, count: u16) -> DeviceCapacity {
    let quantity = |number: u16| Quantity(number.to_string());
    let most = class.class.settings.max_per_container;
    DeviceCapacity {
        value: quantity(count),
        // Without a policy a request that names no number would take all.
        request_policy: Some(CapacityRequestPolicy {
            default: Some(quantity(1)),
            valid_range: Some(CapacityRequestPolicyRange {
                min: quantity(1),
                max: Some(quantity(most.map_or(count, |most| most.min(count)))),
                step: (count > 1).then(|| quantity(1)),
            }),
            valid_values: None,
        }),
    }
}
