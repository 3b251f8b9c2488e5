//! The parts that devices can have, and which of them are made.

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
    /// How much it has of what parts take: its slots, and the counters of the class.
    pub counters: BTreeMap<String, u64>,
    /// The parts that it can have, though not all of them at once.
    pub parts: Vec<PossiblePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossiblePart {
    pub profile: String,
    pub slots: Range<u16>,
    /// How much it takes of the counters.
    pub takes: BTreeMap<String, u64>,
    /// The device that it is, if it is made.
    pub made: Option<DeviceId>,
    /// Whether the parts of its sort are made and removed all at once.
    pub together: bool,
    pub make: Vec<Step>,
    pub remove: Vec<Step>,
    /// The time after which one is given up.
    pub timeout: Duration,
}

/// A step by which a part is made or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A program of the host with its arguments.
    Run(Vec<String>),
    /// A file of sysfs, and what is written to it.
    Write(PathBuf, String),
}

impl PossiblePart {
    /// Its first slot, by which it is named.
    pub fn placement(&self) -> u16 {
        self.slots.start
    }

    /// Whether only one of the two can be made.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.slots.start < other.slots.end && other.slots.start < self.slots.end
    }
}

/// Why a device is not divided, for people.
struct Whole(String);

impl<E: std::error::Error> From<E> for Whole {
    fn from(error: E) -> Self {
        Whole(error.to_string())
    }
}

/// The devices that can be divided, or are; and why others are not, a line each.
pub fn divisible(
    class: &DeviceClass,
    inventory: &Inventory,
    host: &dyn HostView,
) -> (Vec<Divisible>, Vec<String>) {
    let (mut divisible, mut warnings) = (Vec::new(), Vec::new());
    if class.spec.parts.is_empty() {
        return (divisible, warnings);
    }
    // What is wrong with the facts is said by the inventory.
    let facts = Facts::read(class, host, &mut Vec::new());
    let wholes = inventory.devices.iter().filter(|one| one.part_of.is_none());
    let wholes = wholes.chain(&inventory.divided).chain(&inventory.replaced);
    for whole in wholes.filter(|whole| whole.replicas.is_none()) {
        match divide_device(class, whole, inventory, &facts, host) {
            Ok(one) if one.parts.is_empty() => {}
            Ok(one) => divisible.push(one),
            Err(Whole(reason)) => {
                warnings.push(format!("{}: is not divided: {reason}", whole.id));
            }
        }
    }
    (divisible, warnings)
}

/// Divides one device into the parts that its class describes.
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

/// The parts of a sort, one for each place.
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
    class::profile(&profile).map_err(Whole)?;
    let read = |(name, amount): (&String, &Template)| {
        let amount = class::number(name, &amount.fill(&known)?).map_err(Whole)?;
        Ok((name.clone(), amount))
    };
    let amounts: BTreeMap<_, _> = spec.takes.iter().map(read).collect::<Result<_, Whole>>()?;
    let has_here: Vec<_> = spec.has.iter().map(read).collect::<Result<_, Whole>>()?;
    has.extend(has_here);
    let placements = spec.placements.fill(&known)?;
    let slots = spec.slots.as_ref().map(|slots| slots.fill(&known));
    let slots = slots.unwrap_or_else(|| Ok("1".to_owned()))?;
    let places = class::places(&placements, &slots).map_err(Whole)?;
    let part = |slots: Range<u16>| {
        let mut known = known.clone();
        let own = [profile.clone(), slots.start.to_string()];
        known.extend(AttributeName::of_part().into_iter().zip(own));
        let known = attributes::read(of_place, None, known, facts, &mut Files::new(host))?;
        let wanted = spec.found.equals.fill(&known)?;
        let is_it = |device: &&Device| {
            let value = spec.found.value.fill(&device.attributes);
            value.is_ok_and(|value| value == wanted)
        };
        let mut takes = amounts.clone();
        takes.extend(slots.clone().map(|slot| (slot_name(slot), 1)));
        Ok(PossiblePart {
            profile: profile.clone(),
            slots,
            takes,
            made: made.clone().find(is_it).map(|device| device.id.clone()),
            together: spec.together,
            make: steps(&spec.make, &known)?,
            remove: steps(&spec.remove, &known)?,
            timeout: spec.timeout.get(),
        })
    };
    places.into_iter().map(part).collect()
}

/// The steps, without those that have nothing to say of this part.
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

/// Sorts of which each is made all at once exclude each other, which counters can say: each
/// part takes all of one of its own, of which each part of another sort takes one. The
/// largest sort needs none, since the others have theirs. Returns these counters.
fn alone(sorts: &mut [Vec<PossiblePart>]) -> Result<BTreeMap<String, u64>, Whole> {
    let mut together = sorts.iter().flatten().map(|part| part.together);
    match (
        sorts.len(),
        together.clone().all(|it| it),
        together.any(|it| it),
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

/// How counters begin that are not the class's.
const SLOT: &str = "slot-";

fn slot_name(slot: u16) -> String {
    format!("{SLOT}{slot}")
}
