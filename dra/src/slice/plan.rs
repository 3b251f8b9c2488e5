//! Plans the slices of a node, and the changes that turn the existing slices into the planned
//! ones. Everything here is pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{
    CounterSet, Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};

use super::device::{SliceFeatures, build_devices, build_divisible_device, counter_set};
use crate::class_devices::{ClassDevices, PoolEntry};
use crate::names::{self, DRIVER};

/// The maximum number of devices in a slice. Kubernetes allows twice as many without taints, but
/// the number of slices should not depend on the health of devices.
const MAX_DEVICES: usize = 64;

/// The maximum number of slices in a pool. Further devices are omitted.
const MAX_SLICES: usize = 64;

/// The maximum number of counter sets in a slice.
const MAX_SETS: usize = 8;

/// The devices of a class, divided into slices.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub name: String,
    /// The slices. There is at least one: an empty slice shows that the driver is alive.
    pub slices: Vec<SliceContent>,
    /// The number of omitted devices.
    pub left_out: usize,
}

/// The content of a slice: either devices, or counter sets for devices in other slices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SliceContent {
    pub devices: Vec<Device>,
    pub counters: Vec<CounterSet>,
}

/// Plans the pools of a node. Devices keep their order, because the scheduler allocates the first
/// device that fits.
pub fn plan_pools(node: &str, classes: &[ClassDevices], features: &SliceFeatures) -> Vec<Pool> {
    let pool = |class: &ClassDevices| {
        let (mut devices, mut counters): (Vec<Device>, Vec<CounterSet>) = Default::default();
        for entry in class.list_entries(features.parts) {
            match entry {
                PoolEntry::Device(name, device) => {
                    devices.extend(build_devices(class, device, name, features));
                }
                PoolEntry::Divisible(device) => {
                    counters.push(counter_set(device));
                    devices.extend(build_divisible_device(class, device, features));
                }
            }
        }
        let left_out = devices.len().saturating_sub(MAX_DEVICES * MAX_SLICES);
        devices.truncate(MAX_DEVICES * MAX_SLICES);
        // Slices with counters are written first, because the answer shows whether the API server
        // stores counters.
        let counters = counters.chunks(MAX_SETS).map(|sets| SliceContent {
            counters: sets.to_vec(),
            ..SliceContent::default()
        });
        let devices = devices.chunks(MAX_DEVICES).map(|devices| SliceContent {
            devices: devices.to_vec(),
            ..SliceContent::default()
        });
        let mut slices: Vec<SliceContent> = counters.chain(devices).collect();
        if slices.is_empty() {
            slices.push(SliceContent::default());
        }
        Pool {
            name: names::pool_name(node, &class.class.name),
            slices,
            left_out,
        }
    };
    classes.iter().map(pool).collect()
}

/// A change of one slice in the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum SliceAction {
    /// Deletes this slice, unless it has changed since.
    Delete(Box<ResourceSlice>),
    Replace(Box<ResourceSlice>),
    Create(Box<ResourceSlice>),
}

/// Plans the changes that turn the existing slices of this driver and node into the wanted ones,
/// in the order in which to make them. Returns none if nothing differs.
pub fn plan_actions(node: &str, wanted: &[Pool], existing: &[ResourceSlice]) -> Vec<SliceAction> {
    let mut by_pool: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in existing {
        by_pool
            .entry(&slice.spec.pool.name)
            .or_default()
            .push(slice);
    }
    let (mut deletions, mut writes) = (Vec::new(), Vec::new());
    for pool in wanted {
        let existing = by_pool.remove(pool.name.as_str()).unwrap_or_default();
        plan_pool_actions(node, pool, &existing, &mut deletions, &mut writes);
    }
    let other_slices = by_pool.into_values().flatten();
    deletions.extend(other_slices.map(|slice| SliceAction::Delete(Box::new(slice.clone()))));
    deletions.extend(writes);
    deletions
}

fn plan_pool_actions(
    node: &str,
    pool: &Pool,
    existing: &[&ResourceSlice],
    deletions: &mut Vec<SliceAction>,
    writes: &mut Vec<SliceAction>,
) {
    let generation = existing
        .iter()
        .map(|slice| slice.spec.pool.generation)
        .max();
    let mut used = BTreeSet::new();
    // Slices of an older generation are left over from an interrupted change.
    let mut matching = |index: usize| {
        let matched = existing.iter().find(|slice| {
            Some(slice.spec.pool.generation) == generation
                && index_of(slice) == Some(index)
                && !used.contains(&slice.metadata.name)
        });
        used.extend(matched.map(|slice| slice.metadata.name.clone()));
        matched.copied()
    };
    let matched: Vec<_> = (0..pool.slices.len()).map(&mut matching).collect();
    let count = i64::try_from(pool.slices.len()).unwrap_or(i64::MAX);
    let is_same = |content: &SliceContent, slice: &ResourceSlice| {
        let devices = slice.spec.devices.as_deref().unwrap_or_default();
        slice.spec.pool.resource_slice_count == count
            && slice.spec.shared_counters.as_deref().unwrap_or_default() == content.counters
            && devices.len() == content.devices.len()
            && devices.iter().zip(&content.devices).all(|(device, new)| {
                device.taints.as_deref().unwrap_or_default().len()
                    == new.taints.as_deref().unwrap_or_default().len()
                    && *device == with_times(new, device)
            })
    };
    let pairs = || pool.slices.iter().zip(&matched);
    let changed = pairs().filter(|(new, old)| !old.is_some_and(|old| is_same(new, old)));
    let obsolete = existing
        .iter()
        .filter(|slice| !used.contains(&slice.metadata.name));
    deletions.extend(
        obsolete
            .clone()
            .map(|slice| SliceAction::Delete(Box::new((*slice).clone()))),
    );
    let (changed, obsolete) = (changed.count(), obsolete.count());
    if changed == 0 && obsolete == 0 {
        return;
    }
    let all_exist = matched.iter().all(Option::is_some);
    // Readers treat a pool of several slices as complete only if all have the same generation.
    let is_small = changed <= 1 && all_exist && obsolete == 0;
    let generation = match generation {
        None => 1,
        Some(generation) if is_small => generation,
        Some(generation) => generation + 1,
    };
    for (index, (new, old)) in pairs().enumerate() {
        if is_small && old.is_some_and(|old| is_same(new, old)) {
            continue;
        }
        let resource_pool = ResourcePool {
            name: pool.name.clone(),
            generation,
            resource_slice_count: count,
        };
        writes.push(match old {
            Some(old) => {
                let mut slice = (*old).clone();
                slice.spec.devices = devices_of(new).map(|new| keep_times(&new, old));
                slice.spec.shared_counters = counters_of(new);
                slice.spec.pool = resource_pool;
                SliceAction::Replace(Box::new(slice))
            }
            None => {
                let mut slice = ResourceSlice::default();
                slice.metadata.generate_name = Some(format!("{index:05x}-{DRIVER}-{node}-"));
                slice.spec = ResourceSliceSpec {
                    driver: DRIVER.to_owned(),
                    node_name: Some(node.to_owned()),
                    pool: resource_pool,
                    devices: devices_of(new),
                    shared_counters: counters_of(new),
                    ..ResourceSliceSpec::default()
                };
                SliceAction::Create(Box::new(slice))
            }
        });
    }
}

/// Returns the devices of a slice. A slice with counters has none.
fn devices_of(content: &SliceContent) -> Option<Vec<Device>> {
    let is_of_counters = !content.counters.is_empty();
    (!is_of_counters).then(|| content.devices.clone())
}

fn counters_of(content: &SliceContent) -> Option<Vec<CounterSet>> {
    let is_of_counters = !content.counters.is_empty();
    is_of_counters.then(|| content.counters.clone())
}

/// Parses the index of a slice in its pool from the beginning of its name.
fn index_of(slice: &ResourceSlice) -> Option<usize> {
    let (index, _) = slice.metadata.name.as_deref()?.split_once('-')?;
    usize::from_str_radix(index, 16).ok()
}

/// Returns the new devices, with the times of those taints that they already had.
fn keep_times(new: &[Device], old_slice: &ResourceSlice) -> Vec<Device> {
    let old_devices = old_slice.spec.devices.as_deref().unwrap_or_default();
    let keep_device_times =
        |device: &Device| match old_devices.iter().find(|old| old.name == device.name) {
            Some(old) => with_times(device, old),
            None => device.clone(),
        };
    new.iter().map(keep_device_times).collect()
}

fn with_times(device: &Device, old: &Device) -> Device {
    let mut device = device.clone();
    for taint in device.taints.iter_mut().flatten() {
        let is_same_taint = |old: &&DeviceTaint| old.key == taint.key && old.effect == taint.effect;
        let old = old.taints.iter().flatten().find(is_same_taint);
        taint.time_added = old.and_then(|old| old.time_added.clone());
    }
    device
}
