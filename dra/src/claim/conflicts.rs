//! Checks that the devices of a claim that is being prepared are not in use by another prepared
//! claim. The scheduler checks this as well, when it allocates the devices.

use device_class::discover::Device;
use device_class::name::{ClassName, DeviceId};

use super::record::{ClaimUid, Record};
use super::resolved_device::ResolvedDevice;
use crate::class_devices::{ClassDevices, NamedDevice};
use crate::names;
use crate::plugin_allocations::ContainerDeviceIds;

/// The maximum number of claims whose names an error message lists.
const MAX_NAMED_CLAIMS: usize = 5;

/// The error if a device cannot be prepared for a claim, because other claims have the device or
/// too many shares of it.
#[derive(Debug, thiserror::Error)]
pub enum ClaimConflict {
    /// Another claim still has the device, and the device cannot be shared. This should not happen,
    /// because the scheduler allocates such a device to one claim only.
    #[error(
        "device {device} of pool {pool} is still prepared for the claim {holder}: end the pod of \
         that, or delete this one, so that it is scheduled again"
    )]
    DeviceInUse {
        pool: String,
        device: String,
        /// The name of the claim that has the device, as `NAMESPACE/NAME`.
        holder: String,
        uids: Vec<ClaimUid>,
    },
    #[error(
        "device {device} of pool {pool} may be shared by {total}, and {used} shares are prepared \
         for claims ({}): end the pod of one, or delete this one, so that it is scheduled again",
        holders.join(", ")
    )]
    TooFewShares {
        pool: String,
        device: String,
        total: u16,
        used: u64,
        /// The names of the claims that have shares of the device, each as `NAMESPACE/NAME`.
        holders: Vec<String>,
        uids: Vec<ClaimUid>,
    },
    #[error(
        "a container still has device {device} of pool {pool} by the device plugin: end its pod, \
         or delete this one, so that it is scheduled again"
    )]
    AllocatedByPlugin { pool: String, device: String },
}

/// A device of a claim, with the ids that the last scan of its class found for it.
struct ClaimedDevice<'a> {
    name: &'a str,
    /// The id of the device. `None` means that the device is a part that does not exist yet.
    id: Option<&'a DeviceId>,
    /// The id of the device that contains this part. `None` means that this is not a part.
    parent: Option<&'a DeviceId>,
    /// The number of shares that the claim consumes. `None` means that the device is not shared.
    share_count: Option<u64>,
    /// Whether `name` is the name of a share, not of a device. This is so if the API server does
    /// not store the fields for shared devices, and each share is listed as a separate device.
    has_share_name: bool,
}

impl<'a> ClaimedDevice<'a> {
    fn new(
        class: &'a ClassDevices,
        name: &'a str,
        recorded_id: Option<&'a DeviceId>,
        share: Option<(&Option<String>, u64)>,
    ) -> Self {
        let (id, parent) = match class.find_by_name(name) {
            // The id in the claim record is not used, because after a restart of the node another
            // part may have this id.
            Some(NamedDevice::Part(parent, part)) => (
                part.existing_id.as_ref(),
                Some(&parent.division.whole_device.id),
            ),
            Some(NamedDevice::Device(device)) if recorded_id.is_none() => {
                (Some(&device.id), device.part_of.as_ref())
            }
            _ => {
                let device = recorded_id.and_then(|id| class.find_by_id(id));
                (
                    recorded_id,
                    device.and_then(|device| device.part_of.as_ref()),
                )
            }
        };
        let has_share_name = class
            .device_names
            .iter()
            .zip(class.devices())
            .find(|(_, device)| Some(&device.id) == id)
            .is_some_and(|(device_name, _)| names::is_share_name(device_name, name));
        let is_share = |(id, _): &(&Option<String>, u64)| id.is_some() || has_share_name;
        ClaimedDevice {
            name,
            id,
            parent,
            share_count: share.filter(is_share).map(|(_, count)| count),
            has_share_name,
        }
    }

    /// Converts a device of an allocation result.
    fn from_allocated(device: &'a ResolvedDevice<'_>) -> Self {
        let allocated_device = device.allocated_device;
        let share = (&allocated_device.share_id, allocated_device.share_count);
        Self::new(device.class, &allocated_device.device, None, Some(share))
    }

    /// Returns the devices of one class that a claim record lists. Parts that are being created for
    /// the claim are included.
    fn from_record(record: &'a Record, class: &'a ClassDevices) -> impl Iterator<Item = Self> {
        let is_of_class = |name: &ClassName| *name == class.class.name;
        let devices = record
            .devices
            .iter()
            .filter(move |device| !device.has_admin_access && is_of_class(&device.class))
            .map(|device| {
                let share = (&device.share_id, device.share_count);
                Self::new(class, &device.device, Some(&device.id), Some(share))
            });
        let pending_parts = record
            .pending_devices
            .iter()
            .filter(move |device| is_of_class(&device.class));
        devices.chain(pending_parts.map(|device| Self::new(class, &device.device, None, None)))
    }

    fn is_same_device(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }

    fn overlaps_with(&self, other: &Self) -> bool {
        let is_part_of =
            |device: &Self, parent: &Self| device.parent.is_some() && device.parent == parent.id;
        let is_parent_and_part = is_part_of(self, other) || is_part_of(other, self);
        self.name == other.name || self.is_same_device(other) || is_parent_and_part
    }

    /// Returns the number of shares that the other claim has of the same device. Returns `None` if
    /// the devices differ, or if the two claims cannot share the device.
    fn count_shares_of_same_device(&self, other: &Self) -> Option<u64> {
        let is_same_share = self.has_share_name && self.name == other.name;
        let can_share = self.share_count.is_some() && self.is_same_device(other) && !is_same_share;
        other.share_count.filter(|_| can_share)
    }
}

/// Returns whether the claim already had this device when it was prepared before. Such a claim
/// keeps the device, even if the settings of its class have changed since.
fn contains_device(previous_record: &Record, device: &ResolvedDevice<'_>) -> bool {
    let (request, class) = (device.allocated_device, &device.class.class.name);
    let mut devices = previous_record
        .devices
        .iter()
        .filter(|recorded_device| !recorded_device.has_admin_access);
    let mut pending_devices = previous_record.pending_devices.iter();
    devices.any(|recorded_device| {
        let is_same_name =
            recorded_device.class == *class && recorded_device.device == request.device;
        let id = device.prepared_device.as_ref().map(|prepared| &prepared.id);
        is_same_name
            && recorded_device.share_id == request.share_id
            && id.is_none_or(|id| *id == recorded_device.id)
    }) || pending_devices.any(|recorded_device| {
        recorded_device.class == *class && recorded_device.device == request.device
    })
}

/// Checks that no other claim has one of the allocated devices, and that shared devices have enough
/// free shares. `previous_record` is the record of an earlier preparation of the same claim.
pub(super) fn check_conflicts(
    devices: &[ResolvedDevice<'_>],
    previous_record: Option<&Record>,
    other_records: &[Record],
) -> Result<(), ClaimConflict> {
    // Devices with admin access are not checked, because several claims may have such a device at
    // the same time.
    let exclusive_devices = || {
        devices
            .iter()
            .filter(|device| !device.allocated_device.has_admin_access)
    };
    let was_prepared = |device: &ResolvedDevice<'_>| {
        previous_record.is_some_and(|previous_record| contains_device(previous_record, device))
    };
    for device in exclusive_devices().filter(|device| !was_prepared(device)) {
        let claimed_device = ClaimedDevice::from_allocated(device);
        let (mut conflicting_records, mut sharing_records) = (Vec::new(), Vec::new());
        for record in other_records {
            for recorded_device in ClaimedDevice::from_record(record, device.class) {
                match claimed_device.count_shares_of_same_device(&recorded_device) {
                    Some(count) => sharing_records.push((record, count)),
                    None if claimed_device.overlaps_with(&recorded_device) => {
                        conflicting_records.push((record, recorded_device.name))
                    }
                    None => {}
                }
            }
        }
        let pool = device.allocated_device.pool.clone();
        if let Some((record, name)) = conflicting_records.first() {
            return Err(ClaimConflict::DeviceInUse {
                pool,
                device: (*name).to_owned(),
                holder: record.qualified_name(),
                uids: list_claim_uids(conflicting_records.iter().map(|(record, _)| *record)),
            });
        }
        let requested_count = saturating_sum(
            exclusive_devices()
                .map(ClaimedDevice::from_allocated)
                .filter(|other_device| claimed_device.is_same_device(other_device))
                .filter_map(|other_device| other_device.share_count),
        );
        let used_count = saturating_sum(sharing_records.iter().map(|(_, count)| *count));
        let total_count = claimed_device
            .id
            .and_then(|id| device.class.find_by_id(id))
            .and_then(|present| present.replicas)
            .unwrap_or(1);
        if used_count > 0 && requested_count.saturating_add(used_count) > u64::from(total_count) {
            return Err(ClaimConflict::TooFewShares {
                pool,
                device: device.allocated_device.device.clone(),
                total: total_count,
                used: used_count,
                holders: list_claim_titles(sharing_records.iter().map(|(record, _)| *record)),
                uids: list_claim_uids(sharing_records.iter().map(|(record, _)| *record)),
            });
        }
    }
    Ok(())
}

/// Checks that no container has one of the allocated devices, a part of it, or the device that
/// contains it, through the device plugin. The taint of such a device does not suffice, because a
/// claim may tolerate every taint.
pub(super) fn check_plugin_allocations(
    devices: &[ResolvedDevice<'_>],
    previous_record: Option<&Record>,
    allocated_ids: &ContainerDeviceIds,
) -> Result<(), ClaimConflict> {
    let new_devices = devices.iter().filter(|device| {
        let was_prepared = previous_record.is_some_and(|record| contains_device(record, device));
        !device.allocated_device.has_admin_access && !was_prepared
    });
    for device in new_devices {
        let claimed_device = ClaimedDevice::from_allocated(device);
        let is_same_hardware = |other: &&Device| {
            Some(&other.id) == claimed_device.id
                || Some(&other.id) == claimed_device.parent
                || other.part_of.is_some() && other.part_of.as_ref() == claimed_device.id
        };
        let mut same_hardware = device.class.iter_all_devices().filter(is_same_hardware);
        if same_hardware.any(|other| allocated_ids.contains_device(other)) {
            return Err(ClaimConflict::AllocatedByPlugin {
                pool: device.allocated_device.pool.clone(),
                device: device.allocated_device.device.clone(),
            });
        }
    }
    Ok(())
}

fn saturating_sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Returns the names of the first [`MAX_NAMED_CLAIMS`] claims. If there are more claims, the last
/// entry says how many are omitted.
fn list_claim_titles<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let mut titles: Vec<String> = records.map(Record::qualified_name).collect();
    titles.dedup();
    let omitted_count = titles.len().saturating_sub(MAX_NAMED_CLAIMS);
    titles.truncate(MAX_NAMED_CLAIMS);
    titles.extend((omitted_count > 0).then(|| format!("and {omitted_count} others")));
    titles
}

fn list_claim_uids<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<ClaimUid> {
    let mut uids: Vec<ClaimUid> = records.map(|record| record.uid.clone()).collect();
    uids.dedup();
    uids
}
