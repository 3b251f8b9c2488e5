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
const APPEARS: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);

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
pub(super) struct Claimed {
    pub(super) records: Vec<Record>,
    pub(super) unreadable: Unreadable,
}

impl Claimed {
    /// Returns whether a claim has the part with this name or with the id `made`, or whether
    /// the part is being made for a claim.
    fn has_part(&self, class: &ClassName, name: &str, made: Option<&DeviceId>) -> bool {
        self.records.iter().any(|record| {
            let mut making = record.making.iter();
            let mut devices = record.devices.iter();
            making.any(|one| one.class == *class && one.device == name)
                || devices
                    .any(|one| one.class == *class && (one.device == name || Some(&one.id) == made))
        })
    }
}

impl PartMaker {
    /// Looks up the devices of the class again.
    pub(super) fn look(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
        class.again(&self.root).map_err(|error| PartError::Host {
            root: self.root.clone(),
            error,
        })
    }

    /// Looks up the devices of the class after programs have run, and reads the driver facts
    /// again, because the programs may have changed them.
    fn look_again(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
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
        self.look(class)
    }

    /// Looks up the devices of the class until a condition holds, which may be some time after
    /// the last step. Also returns whether it holds.
    fn look_until(
        &self,
        class: &ClassDevices,
        ended: &StepsResult,
        is_so: impl Fn(&ClassDevices) -> bool,
    ) -> Result<(ClassDevices, bool), PartError> {
        let give_up = Instant::now() + APPEARS;
        loop {
            let now = self.look_again(class)?;
            let is_so = is_so(&now);
            if is_so || !ended.is_success() || Instant::now() >= give_up {
                return Ok((now, is_so));
            }
            sleep(LOOK);
        }
    }

    /// Makes room on a device for the part or the whole device that has the name `name` in
    /// slices, and makes the part. Returns the class as it is afterwards, and the id of the
    /// part or device.
    pub(super) fn ready(
        &self,
        class: &ClassDevices,
        name: &str,
        claimed: &Claimed,
    ) -> Result<(ClassDevices, DeviceId), PartError> {
        let now = self.look(class)?;
        let (whole, part) = find(&now, name)?;
        match part {
            Some(PossiblePart { made: Some(id), .. }) => {
                let id = id.clone();
                Ok((now, id))
            }
            Some(part) => {
                let room = self.with_room(&now, whole, name, &part.takes, claimed)?;
                self.make_with_retry(room.as_ref().unwrap_or(&now), name, claimed)
            }
            None => {
                let (all, id) = (&whole.divisible.counters, whole.divisible.whole.id.clone());
                let room = self.with_room(&now, whole, name, all, claimed)?;
                Ok((room.unwrap_or(now), id))
            }
        }
    }

    /// Removes parts that no claim has, if their room is needed. If any part was removed,
    /// returns the class as it is afterwards.
    fn with_room(
        &self,
        class: &ClassDevices,
        whole: &DivisibleDevice,
        name: &str,
        takes: &BTreeMap<String, u64>,
        claimed: &Claimed,
    ) -> Result<Option<ClassDevices>, PartError> {
        let own = &class.class.name;
        let (of_claims, others): (Vec<_>, Vec<_>) = whole
            .parts()
            .filter(|(other, _)| *other != name)
            .partition(|(other, part)| claimed.has_part(own, other, part.made.as_ref()));
        let mut used = takes.clone();
        for (_, part) in of_claims {
            add(&mut used, &part.takes);
        }
        let total = &whole.divisible.counters;
        if !fits(&used, total) {
            let device = name.to_owned();
            return Err(PartError::NoRoom { device });
        }
        let mut room: Option<ClassDevices> = None;
        for (part, idle) in others.into_iter().filter(|(_, part)| part.made.is_some()) {
            // The part was removed with another part of the same `together` group.
            if room.as_ref().is_some_and(|room| !is_made(room, part)) {
                continue;
            }
            let mut beside = used.clone();
            add(&mut beside, &idle.takes);
            if fits(&beside, total) {
                used = beside;
                continue;
            }
            let in_the_way = |reason| PartError::InTheWay {
                part: part.to_owned(),
                reason,
            };
            // The other parts of the same `together` group are removed with it.
            let goes = |other: &&PossiblePart| other.made == idle.made || idle.together;
            let all = whole
                .divisible
                .parts
                .iter()
                .filter(|one| one.made.is_some());
            for one in all.filter(goes) {
                self.check_unused(class, one, claimed).map_err(in_the_way)?;
            }
            tracing::info!("removing the part {part} of {own}, whose room {name} needs");
            let ended = run(&self.root, &idle.remove, idle.timeout, false);
            let (now, is_gone) = self.look_until(class, &ended, |now| !is_made(now, part))?;
            if !is_gone {
                return Err(in_the_way(ended.reason()));
            }
            room = Some(now);
        }
        Ok(room)
    }

    /// Checks that no container has a part which no known claim has.
    fn check_unused(
        &self,
        class: &ClassDevices,
        idle: &PossiblePart,
        claimed: &Claimed,
    ) -> Result<(), String> {
        if let Some((uid, reason)) = claimed.unreadable.first() {
            let uid = uid.as_str();
            return Err(format!(
                "the claim {uid} may have it, whose record cannot be read: {reason}"
            ));
        }
        let device = idle.made.as_ref().and_then(|id| class.with_id(id));
        let held = Handle::current().block_on(self.allocations.read());
        let held = held.map_err(|error| format!("a container may have it: {error}"))?;
        match device.is_some_and(|device| held.contains_device(device)) {
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
        claimed: &Claimed,
    ) -> Result<(ClassDevices, DeviceId), PartError> {
        let mut now = None;
        let mut is_last = false;
        loop {
            let known = now.as_ref().unwrap_or(class);
            let (_, Some(part)) = find(known, name)? else {
                return Err(part_gone_error(class, name));
            };
            let ended = run(&self.root, &part.make, part.timeout, true);
            let (looked, _) = self.look_until(class, &ended, |now| is_made(now, name))?;
            if let (_, Some(PossiblePart { made: Some(id), .. })) = find(&looked, name)? {
                let id = id.clone();
                return Ok((looked, id));
            }
            self.clear(&looked, name);
            if is_last || ended.is_killed() {
                let (device, reason) = (name.to_owned(), ended.reason());
                return Err(PartError::NotMade { device, reason });
            }
            tracing::info!("making the part {name} once more: {}", ended.reason());
            self.clear_others(&looked, name, claimed);
            (now, is_last) = (Some(looked), true);
        }
    }

    /// Removes incomplete remains of other parts, which no claim has. A removal that failed
    /// may leave remains that the class does not find and that take up room nevertheless.
    fn clear_others(&self, class: &ClassDevices, name: &str, claimed: &Claimed) {
        let Ok((whole, Some(part))) = find(class, name) else {
            return;
        };
        for (other, idle) in whole.parts().filter(|(other, _)| *other != name) {
            let mut both = part.takes.clone();
            add(&mut both, &idle.takes);
            // All parts of a `together` group have the same steps, which were executed
            // already.
            let may_be = idle.made.is_none()
                && idle.remove != part.remove
                && !claimed.has_part(&class.class.name, other, None);
            if may_be && !fits(&both, &whole.divisible.counters) {
                self.clear(class, other);
            }
        }
    }

    /// Removes the incomplete part that an interrupted [`Self::ready`] may have left.
    pub(super) fn roll_back(&self, class: &ClassDevices, name: &str) -> Result<(), PartError> {
        // The driver facts may be older than the interruption.
        let now = self.look_again(class)?;
        match self.clear(&now, name) {
            // If there is nothing to remove, the program may end with an error status.
            ended if !ended.is_killed() => Ok(()),
            ended => Err(PartError::NotRemoved {
                device: name.to_owned(),
                reason: ended.reason(),
            }),
        }
    }

    /// Removes the incomplete remains of a part. If the part or another part exists in its
    /// place, there are no remains, and the steps could remove that part.
    fn clear(&self, class: &ClassDevices, name: &str) -> StepsResult {
        let Ok((whole, Some(part))) = find(class, name) else {
            return StepsResult::Well;
        };
        let mut others = whole.divisible.parts.iter();
        let concerns = |other: &PossiblePart| part.together || other.overlaps(part);
        match others.any(|other| other.made.is_some() && concerns(other)) {
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
    let whole = class.wholes.iter().find(|whole| whole.name == name);
    match (whole, class.named(name)) {
        (Some(whole), _) => Ok((whole, None)),
        (None, Some(NamedDevice::Part(whole, part))) => Ok((whole, Some(part))),
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

fn add(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, amount) in more {
        let so_far = sum.entry(name.clone()).or_default();
        *so_far = so_far.saturating_add(*amount);
    }
}

fn fits(used: &BTreeMap<String, u64>, total: &BTreeMap<String, u64>) -> bool {
    let mut used = used.iter();
    used.all(|(name, amount)| total.get(name).is_some_and(|total| amount <= total))
}
