//! The parts into which devices can be divided, and which of these parts exist now.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::attributes::{self, Files};
use super::{Device, Inventory, source};
use crate::class::{self, DeviceClass, MAX_COUNTERS, PartStep, Parts, WriteStep};
use crate::facts::Facts;
use crate::host::HostView;
use crate::name::{AttributeName, DeviceId, excerpt};
use crate::template::{Attributes, Template};

#[derive(Debug, Clone)]
pub struct Divisible {
    pub whole: Device,
    /// The amount of each counter that the device has and its parts use up: the slots of the
    /// device, and the counters that the class describes.
    pub counters: BTreeMap<String, u64>,
    /// The parts that the device can have. Their use of the counters decides which of them can
    /// exist at the same time.
    pub parts: Vec<PossiblePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossiblePart {
    pub profile: String,
    pub slots: Range<u16>,
    /// The amount of each counter of the whole device that the part uses up.
    pub takes: BTreeMap<String, u64>,
    /// The id of the part as a device; `None` if the part does not exist now.
    pub made: Option<DeviceId>,
    /// Whether all parts of one profile are created and removed in one operation.
    pub together: bool,
    /// The steps that create the part, in order.
    pub make: Vec<Step>,
    /// The steps that remove the part, in order.
    pub remove: Vec<Step>,
    /// The longest time that one step may take.
    pub timeout: Duration,
}

/// A step that creates or removes a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A program of the host with its arguments.
    Run(Vec<String>),
    /// The path of a file in sysfs, and the text that is written to the file.
    Write(PathBuf, String),
}

impl PossiblePart {
    /// Returns the first slot of the part. Profile and first slot together name a part.
    pub fn placement(&self) -> u16 {
        self.slots.start
    }

    /// Whether two parts of the same device have a slot in common, so that only one of the two
    /// parts can exist.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.slots.start < other.slots.end && other.slots.start < self.slots.end
    }
}

/// The reason, for people, why a device cannot be divided.
struct Whole(String);

impl<E: std::error::Error> From<E> for Whole {
    fn from(error: E) -> Self {
        Whole(error.to_string())
    }
}

/// Returns the devices that can be divided or are divided already. The second list has one
/// line for each device that the class divides but whose description is faulty.
pub fn divisible(
    class: &DeviceClass,
    inventory: &Inventory,
    host: &dyn HostView,
) -> (Vec<Divisible>, Vec<String>) {
    let (mut divisible, mut warnings) = (Vec::new(), Vec::new());
    if class.spec.parts.is_empty() {
        return (divisible, warnings);
    }
    // The inventory reported the warnings about these facts already.
    let facts = Facts::read(class, host, &mut Vec::new());
    let devices = inventory.devices.iter();
    let wholes = devices.filter(|device| device.part_of.is_none());
    let wholes = wholes.chain(&inventory.divided).chain(&inventory.replaced);
    for whole in wholes.filter(|whole| whole.replicas.is_none()) {
        match divide_device(class, whole, inventory, &facts, host) {
            Ok(divided) if divided.parts.is_empty() => {}
            Ok(divided) => divisible.push(divided),
            Err(Whole(reason)) => {
                warnings.push(format!("{}: is not divided: {reason}", whole.id));
            }
        }
    }
    (divisible, warnings)
}

/// Computes the parts that one device can have, and the counters that limit them.
fn divide_device(
    class: &DeviceClass,
    whole: &Device,
    inventory: &Inventory,
    facts: &Facts,
    host: &dyn HostView,
) -> Result<Divisible, Whole> {
    let made = inventory.devices.iter();
    let made = made.filter(|device| device.part_of.as_ref() == Some(&whole.id));
    let (mut sorts, mut has) = (Vec::new(), BTreeMap::new());
    for spec in &class.spec.parts {
        for known in list_sorts(spec, whole, facts)? {
            let mut require = spec.require.iter();
            if require.all(|condition| source::holds(condition, &known, host)) {
                sorts.push(of_sort(spec, known, made.clone(), &mut has, facts, host)?);
            }
        }
    }
    let alone = alone(&mut sorts)?;
    let parts = sorts.concat();
    let is_known = |device: &&Device| {
        parts
            .iter()
            .any(|part| part.made.as_ref() == Some(&device.id))
    };
    match made.clone().find(|device| !is_known(device)) {
        Some(other) if !parts.is_empty() => {
            return Err(Whole(format!(
                "its part {} is none of a profile in [[parts]]: remove it, or describe it in the \
                 class",
                other.id
            )));
        }
        _ => {}
    }
    let mut counters = BTreeMap::new();
    for (name, amount) in &class.spec.counters {
        let value = amount.fill(&whole.attributes)?;
        let name = name.clone();
        match value.parse() {
            Ok(amount) => counters.insert(name, amount),
            Err(_) => {
                let value = excerpt(&value);
                let reason = format!("the counter {name} is `{value}`, which is not a number");
                return Err(Whole(reason));
            }
        };
    }
    let are_told = !counters.is_empty();
    let slots = parts.iter().map(|part| part.slots.end).max().unwrap_or(0);
    counters.extend((0..slots).map(|slot| (slot_name(slot), 1)));
    counters.extend(alone);
    let takes = parts.iter().flat_map(|part| &part.takes);
    for (name, amount) in takes.filter(|_| !are_told) {
        let most: &mut u64 = counters.entry(name.clone()).or_default();
        *most = (*most).max(*amount);
    }
    counters.extend(has);
    if counters.len() > MAX_COUNTERS {
        return Err(Whole(format!(
            "{} slots and counters are more than {MAX_COUNTERS}",
            counters.len()
        )));
    }
    Ok(Divisible {
        whole: whole.clone(),
        counters,
        parts,
    })
}

/// Lists the sorts of parts that a table describes, each with its attributes: those of the
/// whole device and, if the table has `each`, one value of that fact.
fn list_sorts(spec: &Parts, whole: &Device, facts: &Facts) -> Result<Vec<Attributes>, Whole> {
    let known = || whole.attributes.clone();
    let Some(key) = &spec.each else {
        return Ok(vec![known()]);
    };
    let key = key.fill(&whole.attributes)?;
    let with = |value: &String| {
        let mut known = known();
        known.insert(AttributeName::each_fact(), value.clone());
        known
    };
    Ok(facts.values(&key).iter().map(with).collect())
}

/// Returns the possible parts of one profile, one for each placement in the slots of the whole
/// device. The counters that the profile describes are added to `has`.
fn of_sort<'a>(
    spec: &Parts,
    known: Attributes,
    made: impl Iterator<Item = &'a Device> + Clone,
    has: &mut BTreeMap<String, u64>,
    facts: &Facts,
    host: &dyn HostView,
) -> Result<Vec<PossiblePart>, Whole> {
    let (common, of_place) = spec.attributes();
    let known = attributes::read(common, None, known, facts, &mut Files::new(host))?;
    let profile = spec.profile.fill(&known)?;
    class::check_profile(&profile).map_err(Whole)?;
    let read = |(name, amount): (&String, &Template)| {
        let amount = class::parse_number(name, &amount.fill(&known)?).map_err(Whole)?;
        Ok((name.clone(), amount))
    };
    let amounts: BTreeMap<_, _> = spec.takes.iter().map(read).collect::<Result<_, Whole>>()?;
    let has_here: Vec<_> = spec.has.iter().map(read).collect::<Result<_, Whole>>()?;
    has.extend(has_here);
    let placements = spec.placements.fill(&known)?;
    let slots = spec.slots.as_ref().map(|slots| slots.fill(&known));
    let slots = slots.unwrap_or_else(|| Ok("1".to_owned()))?;
    let places = class::parse_placements(&placements, &slots).map_err(Whole)?;
    let part = |slots: Range<u16>| {
        let mut known = known.clone();
        let own = [profile.clone(), slots.start.to_string()];
        known.extend(AttributeName::of_part().into_iter().zip(own));
        let known = attributes::read(of_place, None, known, facts, &mut Files::new(host))?;
        let wanted = spec.found.equals.fill(&known)?;
        let is_this_part = |device: &&Device| {
            let value = spec.found.value.fill(&device.attributes);
            value.is_ok_and(|value| value == wanted)
        };
        let mut takes = amounts.clone();
        takes.extend(slots.clone().map(|slot| (slot_name(slot), 1)));
        Ok(PossiblePart {
            profile: profile.clone(),
            slots,
            takes,
            made: made
                .clone()
                .find(is_this_part)
                .map(|device| device.id.clone()),
            together: spec.together,
            make: steps(&spec.make, &known)?,
            remove: steps(&spec.remove, &known)?,
            timeout: spec.timeout.get(),
        })
    };
    places.into_iter().map(part).collect()
}

/// Fills in the steps for one part. A step is left out if an argument of its command, or the
/// text that it writes, is empty for this part.
fn steps(specs: &[PartStep], known: &Attributes) -> Result<Vec<Step>, Whole> {
    let mut steps = Vec::new();
    for spec in specs {
        match spec {
            PartStep::Run(command) => {
                let command = command.iter().map(|text| text.fill(known));
                let command = command.collect::<Result<Vec<_>, _>>()?;
                if command.iter().all(|argument| !argument.is_empty()) {
                    steps.push(Step::Run(command));
                }
            }
            PartStep::Write(WriteStep { file, write }) => {
                let text = write.fill(known)?;
                if !text.is_empty() {
                    steps.push(Step::Write(file.fill(known)?, text));
                }
            }
        }
    }
    Ok(steps)
}

/// Adds counters that keep parts of different profiles from existing at the same time, where
/// all parts of a profile are created in one operation (`together`). Each part gets a counter
/// of its own and uses up all of it, while each part of another profile uses up one unit. The
/// profile with the most parts needs no counters of its own, since the counters of the other
/// profiles exclude it. Returns the new counters.
fn alone(sorts: &mut [Vec<PossiblePart>]) -> Result<BTreeMap<String, u64>, Whole> {
    let mut together = sorts.iter().flatten().map(|part| part.together);
    match (
        sorts.len(),
        together.clone().all(|is_together| is_together),
        together.any(|is_together| is_together),
    ) {
        (0 | 1, ..) | (_, _, false) => return Ok(BTreeMap::new()),
        (_, false, true) => {
            let reason = "[[parts]] with `together` and without are of the same device";
            return Err(Whole(reason.to_owned()));
        }
        (_, true, true) => {}
    }
    let largest = (0..sorts.len()).max_by_key(|sort| sorts[*sort].len());
    let most = sorts.iter().map(Vec::len).max().unwrap_or(0) as u64;
    let mut counters = BTreeMap::new();
    for sort in (0..sorts.len()).filter(|sort| Some(*sort) != largest) {
        for own in 0..sorts[sort].len() {
            let name = format!("{SLOT}{sort}-{}", sorts[sort][own].placement());
            for (other, parts) in sorts.iter_mut().enumerate() {
                for (number, part) in parts.iter_mut().enumerate() {
                    let amount = match (other == sort, number == own) {
                        (true, true) => most,
                        (true, false) => continue,
                        (false, _) => 1,
                    };
                    part.takes.insert(name.clone(), amount);
                }
            }
            counters.insert(name, most);
        }
    }
    Ok(counters)
}

/// The prefix of the names of counters that this file adds to those of the class.
const SLOT: &str = "slot-";

fn slot_name(slot: u16) -> String {
    format!("{SLOT}{slot}")
}
