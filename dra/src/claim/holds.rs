//! Checks that no two claims have the same device. This is the last check, after that of the
//! scheduler.
//!
//! Devices are compared by class and id. What a slice calls a device, and whether it is shared,
//! depends on the class's settings and on what the API server keeps, and both may change while
//! claims are prepared.

use device_class::name::{ClassName, DeviceId};

use super::prepare::{AllocatedDevice, PrepareError};
use super::record::{ClaimUid, Record};
use crate::class_devices::{ClassDevices, Named};
use crate::names;

/// The maximum number of claims that an error names.
const NAMED: usize = 5;

/// A device that a claim has or gets, as the class describes it now.
struct ClaimedDevice<'a> {
    name: &'a str,
    /// The device's id. `None` means a part that does not exist.
    id: Option<&'a DeviceId>,
    /// The device to which the part belongs.
    whole: Option<&'a DeviceId>,
    /// The number of shares that the claim takes. `None` means that the device is not shared.
    shares: Option<u64>,
    /// Whether each share is a device of its own in slices.
    is_named_share: bool,
}

impl<'a> ClaimedDevice<'a> {
    fn new(
        class: &'a ClassDevices,
        name: &'a str,
        recorded: Option<&'a DeviceId>,
        share: Option<(&Option<String>, u64)>,
    ) -> Self {
        let (id, whole) = match class.named(name) {
            // After a restart of the node the recorded id may be that of another part.
            Some(Named::Part(whole, part)) => (part.made.as_ref(), Some(&whole.divisible.whole.id)),
            Some(Named::Device(device)) if recorded.is_none() => {
                (Some(&device.id), device.part_of.as_ref())
            }
            _ => {
                let known = recorded.and_then(|id| class.with_id(id));
                (recorded, known.and_then(|known| known.part_of.as_ref()))
            }
        };
        let mut named = class.names.iter().zip(class.devices());
        let own = named.find(|(_, device)| Some(&device.id) == id);
        let is_named_share = own.is_some_and(|(own, _)| names::is_share(own, name));
        let is_share = |(id, _): &(&Option<String>, u64)| id.is_some() || is_named_share;
        ClaimedDevice {
            name,
            id,
            whole,
            shares: share.filter(is_share).map(|(_, count)| count),
            is_named_share,
        }
    }

    /// Returns the device that a claim gets.
    fn from_allocated(chosen: &'a AllocatedDevice<'_>) -> Self {
        let granted = chosen.granted;
        let share = (&granted.share, granted.shares);
        Self::new(chosen.class, &granted.device, None, Some(share))
    }

    /// Returns the devices of a class that the claim of a record has, or that are being made
    /// for it.
    fn from_record(record: &'a Record, class: &'a ClassDevices) -> impl Iterator<Item = Self> {
        let is_of = |name: &ClassName| *name == class.class.name;
        let devices = record.devices.iter().filter(|one| !one.admin);
        let devices = devices.filter(move |one| is_of(&one.class)).map(|one| {
            let share = (&one.share, one.shares);
            Self::new(class, &one.device, Some(&one.id), Some(share))
        });
        let making = record.making.iter().filter(move |one| is_of(&one.class));
        devices.chain(making.map(|one| Self::new(class, &one.device, None, None)))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }

    fn touches(&self, other: &Self) -> bool {
        let is_part = |part: &Self, of: &Self| part.whole.is_some() && part.whole == of.id;
        let is_inside = is_part(self, other) || is_part(other, self);
        self.name == other.name || self.is_same(other) || is_inside
    }

    /// Returns the number of shares that the other claim has of the same device, if both
    /// claims can have shares of it.
    fn beside(&self, other: &Self) -> Option<u64> {
        let is_same_share = self.is_named_share && self.name == other.name;
        let can_be = self.shares.is_some() && self.is_same(other) && !is_same_share;
        other.shares.filter(|_| can_be)
    }
}

/// Returns whether the claim had this device when it was prepared before. Then it keeps the
/// device, even if the settings of the class have changed.
fn had(before: &Record, chosen: &AllocatedDevice<'_>) -> bool {
    let (granted, class) = (chosen.granted, &chosen.class.class.name);
    let mut devices = before.devices.iter().filter(|one| !one.admin);
    let mut making = before.making.iter();
    devices.any(|one| {
        let is_same = one.class == *class && one.device == granted.device;
        let id = chosen.device.as_ref().map(|device| &device.id);
        is_same && one.share == granted.share && id.is_none_or(|id| *id == one.id)
    }) || making.any(|one| one.class == *class && one.device == granted.device)
}

/// Checks that no other claim has a device that the claim gets, and that shared devices have
/// enough free shares.
pub(super) fn check(
    chosen: &[AllocatedDevice<'_>],
    before: Option<&Record>,
    others: &[Record],
) -> Result<(), PrepareError> {
    // A claim with admin access does not count.
    let chosen = || chosen.iter().filter(|one| !one.granted.admin);
    for one in chosen().filter(|one| !before.is_some_and(|before| had(before, one))) {
        let own = ClaimedDevice::from_allocated(one);
        let (mut excluding, mut beside) = (Vec::new(), Vec::new());
        for other in others {
            for held in ClaimedDevice::from_record(other, one.class) {
                match own.beside(&held) {
                    Some(count) => beside.push((other, count)),
                    None if own.touches(&held) => excluding.push((other, held.name)),
                    None => {}
                }
            }
        }
        let pool = one.granted.pool.clone();
        if let Some((other, device)) = excluding.first() {
            return Err(PrepareError::Held {
                pool,
                device: (*device).to_owned(),
                holder: other.title(),
                uids: uids(excluding.iter().map(|(other, _)| *other)),
            });
        }
        let same = chosen()
            .map(ClaimedDevice::from_allocated)
            .filter(|same| own.is_same(same));
        let wanted = sum(same.filter_map(|same| same.shares));
        let used = sum(beside.iter().map(|(_, count)| *count));
        let device = own.id.and_then(|id| one.class.with_id(id));
        let total = device.and_then(|device| device.replicas).unwrap_or(1);
        if used > 0 && wanted.saturating_add(used) > u64::from(total) {
            return Err(PrepareError::TooFew {
                pool,
                device: one.granted.device.clone(),
                total,
                used,
                holders: titles(beside.iter().map(|(other, _)| *other)),
                uids: uids(beside.iter().map(|(other, _)| *other)),
            });
        }
    }
    Ok(())
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Returns the names of the first claims, and the number of the others.
fn titles<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let mut titles: Vec<String> = records.map(Record::title).collect();
    titles.dedup();
    let more = titles.len().saturating_sub(NAMED);
    titles.truncate(NAMED);
    titles.extend((more > 0).then(|| format!("and {more} others")));
    titles
}

fn uids<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<ClaimUid> {
    let mut uids: Vec<ClaimUid> = records.map(|record| record.uid.clone()).collect();
    uids.dedup();
    uids
}
