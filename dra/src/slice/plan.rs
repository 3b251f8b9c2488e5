//! Plans the slices of a node, and the changes that turn the existing slices into the planned
//! slices. The functions have no side effects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{
    CounterSet, Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};

use super::device::{SliceFeatures, build_counter_set, build_devices, build_divisible_device};
use crate::class_devices::{ClassDevices, PoolEntry};
use crate::names::{self, DRIVER};

/// The maximum number of devices in a slice. Kubernetes allows twice as many if no device has a
/// taint. The lower limit is always used, so that the number of slices does not depend on the
/// health of devices.
const MAX_SLICE_DEVICES: usize = 64;

/// The maximum number of slices in a pool. Devices that do not fit are omitted.
const MAX_POOL_SLICES: usize = 64;

/// The maximum number of counter sets in a slice. Further sets get another slice.
const MAX_COUNTER_SETS: usize = 8;

/// The devices of a class, divided into slices.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub name: String,
    /// The contents of the slices. There is at least one slice: an empty one shows that the driver
    /// runs.
    pub slices: Vec<SliceContent>,
    /// The number of devices that were omitted because the pool is full.
    pub omitted_count: usize,
}

/// The content of a slice: either devices, or counter sets for devices in other slices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SliceContent {
    pub devices: Vec<Device>,
    pub counter_sets: Vec<CounterSet>,
}

/// Plans the pools of a node, one for each class. The order of the devices is kept, because the
/// scheduler allocates the first device that fits.
pub fn plan_pools(node: &str, classes: &[ClassDevices], features: &SliceFeatures) -> Vec<Pool> {
    let plan_pool = |class: &ClassDevices| {
        let (mut devices, mut counter_sets): (Vec<Device>, Vec<CounterSet>) = Default::default();
        for entry in class.list_pool_entries(features.supports_parts) {
            match entry {
                PoolEntry::Device(name, device) => {
                    devices.extend(build_devices(class, device, name, features));
                }
                PoolEntry::Divisible(device) => {
                    counter_sets.push(build_counter_set(device));
                    devices.extend(build_divisible_device(class, device, features));
                }
            }
        }
        let omitted_count = devices
            .len()
            .saturating_sub(MAX_SLICE_DEVICES * MAX_POOL_SLICES);
        devices.truncate(MAX_SLICE_DEVICES * MAX_POOL_SLICES);
        // The slices with counters come first, because the answer to their creation shows whether
        // the API server stores counters.
        let counter_slices = counter_sets
            .chunks(MAX_COUNTER_SETS)
            .map(|sets| SliceContent {
                counter_sets: sets.to_vec(),
                ..SliceContent::default()
            });
        let device_slices = devices
            .chunks(MAX_SLICE_DEVICES)
            .map(|devices| SliceContent {
                devices: devices.to_vec(),
                ..SliceContent::default()
            });
        let mut slices: Vec<SliceContent> = counter_slices.chain(device_slices).collect();
        if slices.is_empty() {
            slices.push(SliceContent::default());
        }
        Pool {
            name: names::build_pool_name(node, &class.class.name),
            slices,
            omitted_count,
        }
    };
    classes.iter().map(plan_pool).collect()
}

/// A change of one slice in the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum SliceAction {
    /// Deletes this slice, unless it has changed after it was read.
    Delete(Box<ResourceSlice>),
    Replace(Box<ResourceSlice>),
    Create(Box<ResourceSlice>),
}

/// Plans the changes that turn the existing slices of this driver and node into the slices of
/// `pools`. The changes must be made in the returned order. Returns no changes if the slices do not
/// differ.
pub fn plan_actions(
    node: &str,
    pools: &[Pool],
    existing_slices: &[ResourceSlice],
) -> Vec<SliceAction> {
    let mut slices_by_pool: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in existing_slices {
        slices_by_pool
            .entry(&slice.spec.pool.name)
            .or_default()
            .push(slice);
    }
    let (mut deletions, mut writes) = (Vec::new(), Vec::new());
    for pool in pools {
        let existing_slices = slices_by_pool
            .remove(pool.name.as_str())
            .unwrap_or_default();
        plan_pool_actions(node, pool, &existing_slices, &mut deletions, &mut writes);
    }
    let obsolete_slices = slices_by_pool.into_values().flatten();
    deletions.extend(obsolete_slices.map(|slice| SliceAction::Delete(Box::new(slice.clone()))));
    deletions.extend(writes);
    deletions
}

fn plan_pool_actions(
    node: &str,
    pool: &Pool,
    existing_slices: &[&ResourceSlice],
    deletions: &mut Vec<SliceAction>,
    writes: &mut Vec<SliceAction>,
) {
    let generation = existing_slices
        .iter()
        .map(|slice| slice.spec.pool.generation)
        .max();
    let mut used_names = BTreeSet::new();
    // A slice with an older generation remains from an interrupted change, and is not used.
    let mut find_old_slice = |index: usize| {
        let matching_slice = existing_slices.iter().find(|slice| {
            Some(slice.spec.pool.generation) == generation
                && parse_slice_index(slice) == Some(index)
                && !used_names.contains(&slice.metadata.name)
        });
        used_names.extend(matching_slice.map(|slice| slice.metadata.name.clone()));
        matching_slice.copied()
    };
    let old_slices: Vec<_> = (0..pool.slices.len()).map(&mut find_old_slice).collect();
    let slice_count = i64::try_from(pool.slices.len()).unwrap_or(i64::MAX);
    let is_unchanged = |content: &SliceContent, slice: &ResourceSlice| {
        let devices = slice.spec.devices.as_deref().unwrap_or_default();
        slice.spec.pool.resource_slice_count == slice_count
            && slice.spec.shared_counters.as_deref().unwrap_or_default() == content.counter_sets
            && devices.len() == content.devices.len()
            && devices
                .iter()
                .zip(&content.devices)
                .all(|(device, new_content)| {
                    device.taints.as_deref().unwrap_or_default().len()
                        == new_content.taints.as_deref().unwrap_or_default().len()
                        && *device == copy_taint_times(new_content, device)
                })
    };
    let slice_pairs = || pool.slices.iter().zip(&old_slices);
    let changed_slices = slice_pairs().filter(|(new_content, old_slice)| {
        !old_slice.is_some_and(|old_slice| is_unchanged(new_content, old_slice))
    });
    let obsolete = existing_slices
        .iter()
        .filter(|slice| !used_names.contains(&slice.metadata.name));
    deletions.extend(
        obsolete
            .clone()
            .map(|slice| SliceAction::Delete(Box::new((*slice).clone()))),
    );
    let (changed_count, obsolete_count) = (changed_slices.count(), obsolete.count());
    if changed_count == 0 && obsolete_count == 0 {
        return;
    }
    let all_exist = old_slices.iter().all(Option::is_some);
    // The generation changes only if several slices change. While the slices of a pool have
    // different generations, readers treat the pool as incomplete.
    let is_single_change = changed_count <= 1 && all_exist && obsolete_count == 0;
    let generation = match generation {
        None => 1,
        Some(generation) if is_single_change => generation,
        Some(generation) => generation + 1,
    };
    for (index, (new_content, old_slice)) in slice_pairs().enumerate() {
        if is_single_change
            && old_slice.is_some_and(|old_slice| is_unchanged(new_content, old_slice))
        {
            continue;
        }
        let resource_pool = ResourcePool {
            name: pool.name.clone(),
            generation,
            resource_slice_count: slice_count,
        };
        writes.push(match old_slice {
            Some(old_slice) => {
                let mut slice = (*old_slice).clone();
                slice.spec.devices = build_devices_field(new_content)
                    .map(|devices| keep_taint_times(&devices, old_slice));
                slice.spec.shared_counters = build_counters_field(new_content);
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
                    devices: build_devices_field(new_content),
                    shared_counters: build_counters_field(new_content),
                    ..ResourceSliceSpec::default()
                };
                SliceAction::Create(Box::new(slice))
            }
        });
    }
}

/// Builds the field `devices` of a slice. A slice with counters has no devices.
fn build_devices_field(content: &SliceContent) -> Option<Vec<Device>> {
    let has_counters = !content.counter_sets.is_empty();
    (!has_counters).then(|| content.devices.clone())
}

fn build_counters_field(content: &SliceContent) -> Option<Vec<CounterSet>> {
    let has_counters = !content.counter_sets.is_empty();
    has_counters.then(|| content.counter_sets.clone())
}

/// Parses the index of a slice in its pool, which is a hexadecimal number at the beginning of the
/// slice's name.
fn parse_slice_index(slice: &ResourceSlice) -> Option<usize> {
    let (index, _) = slice.metadata.name.as_deref()?.split_once('-')?;
    usize::from_str_radix(index, 16).ok()
}

/// Returns a copy of `new_devices`. In the copy, every unchanged taint keeps the time at which it
/// was first added.
fn keep_taint_times(new_devices: &[Device], old_slice: &ResourceSlice) -> Vec<Device> {
    let old_devices = old_slice.spec.devices.as_deref().unwrap_or_default();
    let copy_old_times = |device: &Device| match old_devices
        .iter()
        .find(|old_device| old_device.name == device.name)
    {
        Some(old_device) => copy_taint_times(device, old_device),
        None => device.clone(),
    };
    new_devices.iter().map(copy_old_times).collect()
}

fn copy_taint_times(device: &Device, old_device: &Device) -> Device {
    let mut device = device.clone();
    for taint in device.taints.iter_mut().flatten() {
        let is_same_taint = |old_taint: &&DeviceTaint| {
            old_taint.key == taint.key && old_taint.effect == taint.effect
        };
        let old_taint = old_device.taints.iter().flatten().find(is_same_taint);
        taint.time_added = old_taint.and_then(|old_taint| old_taint.time_added.clone());
    }
    device
}
