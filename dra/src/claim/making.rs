//! Makes parts of devices when a claim gets one. A part that no claim has any more stays until
//! its room is needed, and is removed then.
//!
//! Whether a part exists is decided by what the class finds on the host, and not by the exit
//! status of a program. So a part is recognised whoever made it, and a part that is
//! incomplete, because a process was killed, is removed and made again.

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

use super::programs::{StepsResult, run};
use super::record::Record;
use super::store::Unreadable;
use crate::class_devices::{ClassDevices, DivisibleDevice, NamedDevice};
use crate::plugin_allocations::PluginAllocations;

/// The limit for a new part to appear, and for a removed part to disappear.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The reason for which a claim does not get a part, or a whole device that has parts.
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

/// The host on which parts are made.
#[derive(Debug, Clone)]
pub struct PartMaker {
    /// The path at which the host's root directory is mounted.
    pub root: PathBuf,
    pub allocations: PluginAllocations,
}

/// The devices and parts that claims have.
#[derive(Debug)]
pub(super) struct ClaimedParts {
    pub(super) records: Vec<Record>,
    pub(super) unreadable: Unreadable,
}

impl ClaimedParts {
    /// Returns whether a claim has the part with this name or with the id `made`, or whether
    /// the part is being made for a claim.
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
    /// Looks up the devices of the class again.
    pub(super) fn look_up(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
        class
            .rediscover(&self.root)
            .map_err(|error| PartError::Host {
                root: self.root.clone(),
                error,
            })
    }

    /// Looks up the devices of the class after programs have run, and reads the driver facts
    /// again, because the programs may have changed them.
    fn look_up_again(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
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
        self.look_up(class)
    }

    /// Looks up the devices of the class until a condition holds, which may be some time after
    /// the last step. Also returns whether it holds.
    fn look_up_until(
        &self,
        class: &ClassDevices,
        steps: &StepsResult,
        condition: impl Fn(&ClassDevices) -> bool,
    ) -> Result<(ClassDevices, bool), PartError> {
        let deadline = Instant::now() + APPEAR_TIMEOUT;
        loop {
            let class_now = self.look_up_again(class)?;
            let is_met = condition(&class_now);
            if is_met || !steps.is_success() || Instant::now() >= deadline {
                return Ok((class_now, is_met));
            }
            sleep(LOOK_INTERVAL);
        }
    }

    /// Makes room on a device for the part or the whole device that has the name `name` in
    /// slices, and makes the part. Returns the class as it is afterwards, and the id of the
    /// part or device.
    pub(super) fn make_ready(
        &self,
        class: &ClassDevices,
        name: &str,
        claimed: &ClaimedParts,
    ) -> Result<(ClassDevices, DeviceId), PartError> {
        let current = self.look_up(class)?;
        let (parent, part) = find(&current, name)?;
        match part {
            Some(PossiblePart { made: Some(id), .. }) => {
                let id = id.clone();
                Ok((current, id))
            }
            Some(part) => {
                let room = self.with_room(&current, parent, name, &part.takes, claimed)?;
                self.make_with_retry(room.as_ref().unwrap_or(&current), name, claimed)
            }
            None => {
                let (counters, id) = (
                    &parent.divisible.counters,
                    parent.divisible.whole.id.clone(),
                );
                let room = self.with_room(&current, parent, name, counters, claimed)?;
                Ok((room.unwrap_or(current), id))
            }
        }
    }

    /// Removes parts that no claim has, if their room is needed. If any part was removed,
    /// returns the class as it is afterwards.
    fn with_room(
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
            // The part was removed with another part of the same `together` group.
            if room.as_ref().is_some_and(|room| !is_made(room, part)) {
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
            // The other parts of the same `together` group are removed with it.
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
            let steps = run(&self.root, &unclaimed.remove, unclaimed.timeout, false);
            let (current, is_removed) =
                self.look_up_until(class, &steps, |current| !is_made(current, part))?;
            if !is_removed {
                return Err(in_the_way(steps.reason()));
            }
            room = Some(current);
        }
        Ok(room)
    }

    /// Checks that no container has a part which no known claim has.
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
        match device.is_some_and(|device| allocated.contains_device(device)) {
            true => Err("a container still has it by the device plugin".to_owned()),
            false => Ok(()),
        }
    }

    /// Makes a part. After a failure the remains are removed, and the part is tried once more,
    /// because the remains may be those of an earlier failure.
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
            let (_, Some(part)) = find(current, name)? else {
                return Err(part_gone_error(class, name));
            };
            let steps = run(&self.root, &part.make, part.timeout, true);
            let (found, _) = self.look_up_until(class, &steps, |latest| is_made(latest, name))?;
            if let (_, Some(PossiblePart { made: Some(id), .. })) = find(&found, name)? {
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

    /// Removes incomplete remains of other parts, which no claim has. A removal that failed
    /// may leave remains that the class does not find and that take up room nevertheless.
    fn remove_other_remains(&self, class: &ClassDevices, name: &str, claimed: &ClaimedParts) {
        let Ok((parent, Some(part))) = find(class, name) else {
            return;
        };
        for (other_name, other) in parent.parts().filter(|(other_name, _)| *other_name != name) {
            let mut sum = part.takes.clone();
            add_amounts(&mut sum, &other.takes);
            // All parts of a `together` group have the same steps, which were executed
            // already.
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
        // The driver facts may be older than the interruption.
        let current = self.look_up_again(class)?;
        match self.remove_remains(&current, name) {
            // If there is nothing to remove, the program may end with an error status.
            steps if !steps.is_killed() => Ok(()),
            steps => Err(PartError::NotRemoved {
                device: name.to_owned(),
                reason: steps.reason(),
            }),
        }
    }

    /// Removes the incomplete remains of a part. If the part or another part exists in its
    /// place, there are no remains, and the steps could remove that part.
    fn remove_remains(&self, class: &ClassDevices, name: &str) -> StepsResult {
        let Ok((parent, Some(part))) = find(class, name) else {
            return StepsResult::Well;
        };
        let mut parts = parent.divisible.parts.iter();
        let is_in_its_place = |other: &PossiblePart| part.together || other.overlaps(part);
        match parts.any(|other| other.made.is_some() && is_in_its_place(other)) {
            true => StepsResult::Well,
            false => run(&self.root, &part.remove, part.timeout, false),
        }
    }
}

/// Finds the device, or the part of a device, that has this name in slices.
fn find<'a>(
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

fn is_made(class: &ClassDevices, name: &str) -> bool {
    find(class, name).is_ok_and(|(_, part)| part.is_some_and(|part| part.made.is_some()))
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
