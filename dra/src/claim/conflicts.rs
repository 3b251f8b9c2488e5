//! Checks that no other prepared claim has a device of the new claim. The scheduler checks this
//! before; this check is the last one.
//!
//! Devices are compared by class and id, not by their names in ResourceSlices. The name of a
//! device, and whether it is shared, depends on the settings of the class and on the feature gates
//! of the API server, and both may change while claims are prepared.

use device_class::name::{ClassName, DeviceId};

use super::prepare::{AllocatedDevice, PrepareError};
use super::record::{ClaimUid, Record};
use crate::class_devices::{ClassDevices, NamedDevice};
use crate::names;

/// The maximum number of claims that an error names.
const MAX_NAMED_CLAIMS: usize = 5;

/// A device of a claim, as the class describes it now.
struct ClaimedDevice<'a> {
    name: &'a str,
    /// The device's id. `None` means that the device is a part that does not exist yet.
    id: Option<&'a DeviceId>,
    /// The device that contains this part.
    parent: Option<&'a DeviceId>,
    /// The number of shares that the claim consumes. `None` means that the device is not shared.
    shares: Option<u64>,
    /// Whether the slices list each share as a device of its own.
    is_named_share: bool,
}

impl<'a> ClaimedDevice<'a> {
    fn new(
        class: &'a ClassDevices,
        name: &'a str,
        recorded: Option<&'a DeviceId>,
        share: Option<(&Option<String>, u64)>,
    ) -> Self {
        let (id, parent) = match class.find_by_name(name) {
            // After the node has restarted, the recorded id may belong to another part.
            Some(NamedDevice::Part(parent, part)) => {
                (part.made.as_ref(), Some(&parent.divisible.whole.id))
            }
            Some(NamedDevice::Device(device)) if recorded.is_none() => {
                (Some(&device.id), device.part_of.as_ref())
            }
            _ => {
                let device = recorded.and_then(|id| class.find_by_id(id));
                (recorded, device.and_then(|device| device.part_of.as_ref()))
            }
        };
        let is_named_share = class
            .names
            .iter()
            .zip(class.devices())
            .find(|(_, device)| Some(&device.id) == id)
            .is_some_and(|(device_name, _)| names::is_share(device_name, name));
        let is_share = |(id, _): &(&Option<String>, u64)| id.is_some() || is_named_share;
        ClaimedDevice {
            name,
            id,
            parent,
            shares: share.filter(is_share).map(|(_, count)| count),
            is_named_share,
        }
    }

    /// Describes a device of an allocation result.
    fn from_allocated(device: &'a AllocatedDevice<'_>) -> Self {
        let allocated = device.allocated;
        let share = (&allocated.share, allocated.shares);
        Self::new(device.class, &allocated.device, None, Some(share))
    }

    /// Describes the devices of a class in a claim record, including parts that are being created
    /// for the claim.
    fn from_record(record: &'a Record, class: &'a ClassDevices) -> impl Iterator<Item = Self> {
        let is_of_class = |name: &ClassName| *name == class.class.name;
        let devices = record
            .devices
            .iter()
            .filter(move |device| !device.admin && is_of_class(&device.class))
            .map(|device| {
                let share = (&device.share, device.shares);
                Self::new(class, &device.device, Some(&device.id), Some(share))
            });
        let pending = record
            .making
            .iter()
            .filter(move |device| is_of_class(&device.class));
        devices.chain(pending.map(|device| Self::new(class, &device.device, None, None)))
    }

    fn is_same_device(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }

    fn overlaps(&self, other: &Self) -> bool {
        let is_part =
            |device: &Self, parent: &Self| device.parent.is_some() && device.parent == parent.id;
        let is_part_of_other = is_part(self, other) || is_part(other, self);
        self.name == other.name || self.is_same_device(other) || is_part_of_other
    }

    /// Returns how many shares of the same device the other claim has. Returns `None` if the two
    /// claims cannot share the device.
    fn shares_of_same_device(&self, other: &Self) -> Option<u64> {
        let is_same_share = self.is_named_share && self.name == other.name;
        let can_share = self.shares.is_some() && self.is_same_device(other) && !is_same_share;
        other.shares.filter(|_| can_share)
    }
}

/// Returns whether the claim already had this device when it was last prepared. Such a claim keeps
/// the device, even if the settings of the class have changed.
fn had_device(previous: &Record, device: &AllocatedDevice<'_>) -> bool {
    let (allocated, class) = (device.allocated, &device.class.class.name);
    let mut devices = previous.devices.iter().filter(|recorded| !recorded.admin);
    let mut pending = previous.making.iter();
    devices.any(|recorded| {
        let is_same = recorded.class == *class && recorded.device == allocated.device;
        let id = device.device.as_ref().map(|device| &device.id);
        is_same && recorded.share == allocated.share && id.is_none_or(|id| *id == recorded.id)
    }) || pending.any(|recorded| recorded.class == *class && recorded.device == allocated.device)
}

/// Checks that no other claim has an allocated device, and that shared devices have enough free
/// shares.
pub(super) fn check_conflicts(
    devices: &[AllocatedDevice<'_>],
    previous: Option<&Record>,
    other_records: &[Record],
) -> Result<(), PrepareError> {
    // Admin access does not exclude other claims.
    let counted = || devices.iter().filter(|device| !device.allocated.admin);
    let had_before = |device: &AllocatedDevice<'_>| {
        previous.is_some_and(|previous| had_device(previous, device))
    };
    for device in counted().filter(|device| !had_before(device)) {
        let claimed = ClaimedDevice::from_allocated(device);
        let (mut excluding, mut sharing) = (Vec::new(), Vec::new());
        for record in other_records {
            for recorded in ClaimedDevice::from_record(record, device.class) {
                match claimed.shares_of_same_device(&recorded) {
                    Some(count) => sharing.push((record, count)),
                    None if claimed.overlaps(&recorded) => excluding.push((record, recorded.name)),
                    None => {}
                }
            }
        }
        let pool = device.allocated.pool.clone();
        if let Some((record, name)) = excluding.first() {
            return Err(PrepareError::InUse {
                pool,
                device: (*name).to_owned(),
                holder: record.title(),
                uids: claim_uids(excluding.iter().map(|(record, _)| *record)),
            });
        }
        let requested = saturating_sum(
            counted()
                .map(ClaimedDevice::from_allocated)
                .filter(|other| claimed.is_same_device(other))
                .filter_map(|other| other.shares),
        );
        let used = saturating_sum(sharing.iter().map(|(_, count)| *count));
        let total = claimed
            .id
            .and_then(|id| device.class.find_by_id(id))
            .and_then(|present| present.replicas)
            .unwrap_or(1);
        if used > 0 && requested.saturating_add(used) > u64::from(total) {
            return Err(PrepareError::TooFewShares {
                pool,
                device: device.allocated.device.clone(),
                total,
                used,
                holders: claim_titles(sharing.iter().map(|(record, _)| *record)),
                uids: claim_uids(sharing.iter().map(|(record, _)| *record)),
            });
        }
    }
    Ok(())
}

fn saturating_sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Returns the names of the first claims, and how many others there are.
fn claim_titles<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let mut titles: Vec<String> = records.map(Record::title).collect();
    titles.dedup();
    let omitted = titles.len().saturating_sub(MAX_NAMED_CLAIMS);
    titles.truncate(MAX_NAMED_CLAIMS);
    titles.extend((omitted > 0).then(|| format!("and {omitted} others")));
    titles
}

fn claim_uids<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<ClaimUid> {
    let mut uids: Vec<ClaimUid> = records.map(|record| record.uid.clone()).collect();
    uids.dedup();
    uids
}
