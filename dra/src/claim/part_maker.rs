//! Creates a part of a device, such as a MIG instance, when a claim that has it allocated is
//! prepared. A part that no claim has any more is kept until another part needs its capacity.
//!
//! A part exists if the class finds it on the host; the exit status of a program does not decide
//! it. So a part is recognised whoever created it, and an incomplete part of a killed process is
//! removed and created again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use device_class::discover::PossiblePart;
use device_class::host::RealHost;
use device_class::name::{ClassName, DeviceId, excerpt};
use host_inventory::host_program;
use injection_plan::facts::ReportedFacts;
use tokio::runtime::Handle;

use super::part_steps::{StepsResult, run_steps};
use super::record::Record;
use super::store::UnreadableRecords;
use crate::class_devices::{ClassDevices, DivisibleDevice, NamedDevice};
use crate::plugin_allocations::PluginAllocations;

/// The time limit within which a new part must appear, and a removed part must disappear.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The reason why a claim does not get a part, or a whole device that is divided.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("class {class} has no {device} now: delete the pod, so that it is scheduled again")]
    Gone { class: ClassName, device: String },
    #[error(
        "there is no room for {device} beside what other claims have of the same device: delete \
         the pod, so that it is scheduled again"
    )]
    NoRoom { device: String },
    #[error("the part {device} cannot be made: {reason}")]
    NotMade { device: String, reason: String },
    #[error("the part {part}, which no claim has, is in the way and cannot be removed: {reason}")]
    InTheWay { part: String, reason: String },
    #[error("what was made of the part {device} cannot be removed: {reason}")]
    NotRemoved { device: String, reason: String },
    #[error("{} cannot be searched for devices: {error}", root.display())]
    Host { root: PathBuf, error: io::Error },
}

/// Creates and removes parts of devices on one host.
#[derive(Debug, Clone)]
pub struct PartMaker {
    /// The path at which this process sees the host's root directory.
    pub root: PathBuf,
    pub allocations: PluginAllocations,
}

/// The records of all other claims, which say which devices and parts are in use.
#[derive(Debug)]
pub(super) struct ClaimedParts {
    pub(super) records: Vec<Record>,
    pub(super) unreadable: UnreadableRecords,
}

impl ClaimedParts {
    /// Returns whether a claim has the part with this name or id, or whether the part is being
    /// created for a claim.
    fn has_part(&self, class: &ClassName, name: &str, part_id: Option<&DeviceId>) -> bool {
        self.records.iter().any(|record| {
            let mut pending = record.making.iter();
            let mut devices = record.devices.iter();
            pending.any(|device| device.class == *class && device.device == name)
                || devices.any(|device| {
                    device.class == *class && (device.device == name || Some(&device.id) == part_id)
                })
        })
    }
}

impl PartMaker {
    /// Looks up the class's devices on the host.
    pub(super) fn look_up_devices(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
        class
            .rediscover(&self.root)
            .map_err(|error| PartError::Host {
                root: self.root.clone(),
                error,
            })
    }

    /// Looks up the class's devices after programs have run. The driver facts are read again
    /// first, because the programs may have changed them.
    fn refresh_devices(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
        let spec = &class.class;
        if !spec.spec.facts.is_empty()
            && spec.settings.uses_facts()
            && let Ok(host) = RealHost::open(&self.root)
        {
            let start = |program: &Path, arguments: &[String]| {
                host_program::command(&self.root, program, arguments)
            };
            let reported = ReportedFacts::run_programs(spec, &self.root, start);
            if let Err(error) = reported.write(spec, &self.root, &host) {
                tracing::warn!("{}: facts cannot be written: {error}", spec.name);
            }
        }
        self.look_up_devices(class)
    }

    /// Looks up the class's devices until the condition holds, which may be some time after the
    /// last step, or until [`APPEAR_TIMEOUT`]. Returns the devices and whether the condition
    /// holds.
    fn look_up_until(
        &self,
        class: &ClassDevices,
        steps: &StepsResult,
        condition: impl Fn(&ClassDevices) -> bool,
    ) -> Result<(ClassDevices, bool), PartError> {
        let deadline = Instant::now() + APPEAR_TIMEOUT;
        loop {
            let class_now = self.refresh_devices(class)?;
            let is_met = condition(&class_now);
            if is_met || !steps.is_success() || Instant::now() >= deadline {
                return Ok((class_now, is_met));
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Frees capacity of a device for the part or whole device with this name in slices, and
    /// creates the part. Returns the class's devices afterwards, and the id of the part or device.
    pub(super) fn make_ready(
        &self,
        class: &ClassDevices,
        name: &str,
        claimed: &ClaimedParts,
    ) -> Result<(ClassDevices, DeviceId), PartError> {
        let current = self.look_up_devices(class)?;
        let (parent, part) = find_device_or_part(&current, name)?;
        match part {
            Some(PossiblePart { made: Some(id), .. }) => {
                let id = id.clone();
                Ok((current, id))
            }
            Some(part) => {
                let room = self.make_room(&current, parent, name, &part.takes, claimed)?;
                self.make_with_retry(room.as_ref().unwrap_or(&current), name, claimed)
            }
            None => {
                let (counters, id) = (
                    &parent.divisible.counters,
                    parent.divisible.whole.id.clone(),
                );
                let room = self.make_room(&current, parent, name, counters, claimed)?;
                Ok((room.unwrap_or(current), id))
            }
        }
    }

    /// Removes unclaimed parts whose capacity is needed. Returns the class's devices afterwards if
    /// any part was removed.
    fn make_room(
        &self,
        class: &ClassDevices,
        parent: &DivisibleDevice,
        name: &str,
        counters: &BTreeMap<String, u64>,
        claimed: &ClaimedParts,
    ) -> Result<Option<ClassDevices>, PartError> {
        let class_name = &class.class.name;
        let (claimed_parts, unclaimed_parts): (Vec<_>, Vec<_>) = parent
            .parts()
            .filter(|(part_name, _)| *part_name != name)
            .partition(|(part_name, part)| {
                claimed.has_part(class_name, part_name, part.made.as_ref())
            });
        let mut used = counters.clone();
        for (_, part) in claimed_parts {
            add_amounts(&mut used, &part.takes);
        }
        let total = &parent.divisible.counters;
        if !fits_within(&used, total) {
            let device = name.to_owned();
            return Err(PartError::NoRoom { device });
        }
        let mut room: Option<ClassDevices> = None;
        for (part, unclaimed) in unclaimed_parts
            .into_iter()
            .filter(|(_, part)| part.made.is_some())
        {
            // This part was already removed together with another part of its `together` group.
            if room.as_ref().is_some_and(|room| !part_exists(room, part)) {
                continue;
            }
            let mut with_unclaimed = used.clone();
            add_amounts(&mut with_unclaimed, &unclaimed.takes);
            if fits_within(&with_unclaimed, total) {
                used = with_unclaimed;
                continue;
            }
            let in_the_way = |reason| PartError::InTheWay {
                part: part.to_owned(),
                reason,
            };
            // The steps that remove this part also remove the other parts of its `together` group.
            let is_removed_too =
                |other: &&PossiblePart| other.made == unclaimed.made || unclaimed.together;
            let existing_parts = parent
                .divisible
                .parts
                .iter()
                .filter(|existing| existing.made.is_some());
            for existing in existing_parts.filter(is_removed_too) {
                self.check_unused(class, existing, claimed)
                    .map_err(in_the_way)?;
            }
            tracing::info!("removing the part {part} of {class_name}, whose room {name} needs");
            let steps = run_steps(&self.root, &unclaimed.remove, unclaimed.timeout, false);
            let (current, is_removed) =
                self.look_up_until(class, &steps, |current| !part_exists(current, part))?;
            if !is_removed {
                return Err(in_the_way(steps.reason()));
            }
            room = Some(current);
        }
        Ok(room)
    }

    /// Checks that no container uses a part that no known claim has.
    fn check_unused(
        &self,
        class: &ClassDevices,
        part: &PossiblePart,
        claimed: &ClaimedParts,
    ) -> Result<(), String> {
        if let Some((uid, reason)) = claimed.unreadable.first() {
            let uid = uid.as_str();
            return Err(format!(
                "the claim {uid} may have it, whose record cannot be read: {reason}"
            ));
        }
        let device = part.made.as_ref().and_then(|id| class.find_by_id(id));
        let allocated = Handle::current().block_on(self.allocations.read());
        let allocated = allocated.map_err(|error| format!("a container may have it: {error}"))?;
        if device.is_some_and(|device| allocated.contains_device(device)) {
            Err("a container still has it by the device plugin".to_owned())
        } else {
            Ok(())
        }
    }

    /// Creates a part. After a failure its remains are removed and the creation is tried once
    /// more, because remains of an earlier failure may have caused this one.
    fn make_with_retry(
        &self,
        class: &ClassDevices,
        name: &str,
        claimed: &ClaimedParts,
    ) -> Result<(ClassDevices, DeviceId), PartError> {
        let mut latest = None;
        let mut is_second_try = false;
        loop {
            let current = latest.as_ref().unwrap_or(class);
            let (_, Some(part)) = find_device_or_part(current, name)? else {
                return Err(part_gone_error(class, name));
            };
            let steps = run_steps(&self.root, &part.make, part.timeout, true);
            let (found, _) =
                self.look_up_until(class, &steps, |latest| part_exists(latest, name))?;
            if let (_, Some(PossiblePart { made: Some(id), .. })) =
                find_device_or_part(&found, name)?
            {
                let id = id.clone();
                return Ok((found, id));
            }
            self.remove_remains(&found, name);
            if is_second_try || steps.is_killed() {
                let (device, reason) = (name.to_owned(), steps.reason());
                return Err(PartError::NotMade { device, reason });
            }
            tracing::info!("making the part {name} once more: {}", steps.reason());
            self.remove_other_remains(&found, name, claimed);
            (latest, is_second_try) = (Some(found), true);
        }
    }

    /// Removes incomplete remains of other unclaimed parts. A failed removal may leave remains
    /// that the class does not find and that still occupy capacity.
    fn remove_other_remains(&self, class: &ClassDevices, name: &str, claimed: &ClaimedParts) {
        let Ok((parent, Some(part))) = find_device_or_part(class, name) else {
            return;
        };
        for (other_name, other) in parent.parts().filter(|(other_name, _)| *other_name != name) {
            let mut sum = part.takes.clone();
            add_amounts(&mut sum, &other.takes);
            // All parts of a `together` group share the same steps, which already ran.
            let may_have_remains = other.made.is_none()
                && other.remove != part.remove
                && !claimed.has_part(&class.class.name, other_name, None);
            if may_have_remains && !fits_within(&sum, &parent.divisible.counters) {
                self.remove_remains(class, other_name);
            }
        }
    }

    /// Removes the incomplete part that an interrupted [`Self::make_ready`] may have left.
    pub(super) fn roll_back(&self, class: &ClassDevices, name: &str) -> Result<(), PartError> {
        // The known driver facts may be older than the interrupted call.
        let current = self.refresh_devices(class)?;
        match self.remove_remains(&current, name) {
            // A program that finds nothing to remove may exit with an error status.
            steps if !steps.is_killed() => Ok(()),
            steps => Err(PartError::NotRemoved {
                device: name.to_owned(),
                reason: steps.reason(),
            }),
        }
    }

    /// Removes the incomplete remains of a part. Nothing is done if the part itself or an
    /// overlapping part exists, because the steps could remove that part.
    fn remove_remains(&self, class: &ClassDevices, name: &str) -> StepsResult {
        let Ok((parent, Some(part))) = find_device_or_part(class, name) else {
            return StepsResult::Success;
        };
        let mut parts = parent.divisible.parts.iter();
        let is_in_its_place = |other: &PossiblePart| part.together || other.overlaps(part);
        if parts.any(|other| other.made.is_some() && is_in_its_place(other)) {
            StepsResult::Success
        } else {
            run_steps(&self.root, &part.remove, part.timeout, false)
        }
    }
}

/// Finds the divisible device, or the part of one, with this name in slices.
fn find_device_or_part<'a>(
    class: &'a ClassDevices,
    name: &str,
) -> Result<(&'a DivisibleDevice, Option<&'a PossiblePart>), PartError> {
    let device = class
        .divisible_devices
        .iter()
        .find(|device| device.name == name);
    match (device, class.find_by_name(name)) {
        (Some(device), _) => Ok((device, None)),
        (None, Some(NamedDevice::Part(device, part))) => Ok((device, Some(part))),
        (None, _) => Err(part_gone_error(class, name)),
    }
}

fn part_exists(class: &ClassDevices, name: &str) -> bool {
    find_device_or_part(class, name)
        .is_ok_and(|(_, part)| part.is_some_and(|part| part.made.is_some()))
}

fn part_gone_error(class: &ClassDevices, name: &str) -> PartError {
    PartError::Gone {
        class: class.class.name.clone(),
        device: excerpt(name),
    }
}

fn add_amounts(sum: &mut BTreeMap<String, u64>, amounts: &BTreeMap<String, u64>) {
    for (name, amount) in amounts {
        let so_far = sum.entry(name.clone()).or_default();
        *so_far = so_far.saturating_add(*amount);
    }
}

fn fits_within(used: &BTreeMap<String, u64>, total: &BTreeMap<String, u64>) -> bool {
    let mut used = used.iter();
    used.all(|(name, amount)| total.get(name).is_some_and(|total| amount <= total))
}
