//! The parts that devices can have, and which of them are made.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::{Device, Inventory, attributes, source};
use crate::class::{DeviceClass, Parts};
use crate::facts::Facts;
use crate::host::HostView;
use crate::name::{AttributeName, DeviceId, excerpt};
use crate::template::{Template, TemplateError};

/// A device that can be divided.
#[derive(Debug, Clone)]
pub struct Divisible {
    pub whole: Device,
    /// How much it has of what parts take: its slots, and the counters of the class.
    pub counters: BTreeMap<String, u64>,
    /// The parts that it can have, though not all of them at once.
    pub parts: Vec<PossiblePart>,
}

/// A part that a device can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossiblePart {
    pub profile: String,
    pub slots: Range<u16>,
    /// How much it takes of the counters.
    pub takes: BTreeMap<String, u64>,
    /// The device that it is, if it is made.
    pub made: Option<DeviceId>,
    /// The programs that make it, with their arguments.
    pub make: Vec<Vec<String>>,
    /// Those that remove it.
    pub remove: Vec<Vec<String>>,
    /// The time after which one is killed.
    pub timeout: Duration,
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

/// Why a device is not divided.
#[derive(Debug, thiserror::Error)]
enum Whole {
    #[error(
        "its part {0} is none of a profile in [[parts]]: remove it, or describe it in the class"
    )]
    OtherPart(DeviceId),
    #[error("the counter {name} is `{}`, which is not a number", excerpt(value))]
    Counter { name: String, value: String },
    #[error(transparent)]
    Attribute(#[from] attributes::Unread),
    #[error(transparent)]
    Template(#[from] TemplateError),
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
        match one(class, whole, inventory, &facts, host) {
            Ok(one) if one.parts.is_empty() => {}
            Ok(one) => divisible.push(one),
            Err(reason) => warnings.push(format!("{}: is not divided: {reason}", whole.id)),
        }
    }
    (divisible, warnings)
}

fn one(
    class: &DeviceClass,
    whole: &Device,
    inventory: &Inventory,
    facts: &Facts,
    host: &dyn HostView,
) -> Result<Divisible, Whole> {
    let made = inventory.devices.iter();
    let made = made.filter(|device| device.part_of.as_ref() == Some(&whole.id));
    let mut parts = Vec::new();
    for spec in &class.spec.parts {
        let mut require = spec.require.iter();
        if require.all(|condition| source::holds(condition, &whole.attributes, host)) {
            for placement in &spec.placements {
                let made = made.clone();
                parts.push(part(spec, *placement, whole, made, facts, host)?);
            }
        }
    }
    let is_known = |device: &&Device| {
        parts
            .iter()
            .any(|part| part.made.as_ref() == Some(&device.id))
    };
    match made.clone().find(|device| !is_known(device)) {
        Some(other) if !parts.is_empty() => return Err(Whole::OtherPart(other.id.clone())),
        _ => {}
    }
    let mut counters = BTreeMap::new();
    for (name, amount) in &class.spec.counters {
        let value = amount.fill(&whole.attributes)?;
        let name = name.clone();
        match value.parse() {
            Ok(amount) => counters.insert(name, amount),
            Err(_) => return Err(Whole::Counter { name, value }),
        };
    }
    counters.extend((0..class.spec.slots()).map(|slot| (slot_name(slot), 1)));
    Ok(Divisible {
        whole: whole.clone(),
        counters,
        parts,
    })
}

fn part<'a>(
    spec: &Parts,
    placement: u16,
    whole: &Device,
    mut made: impl Iterator<Item = &'a Device>,
    facts: &Facts,
    host: &dyn HostView,
) -> Result<PossiblePart, Whole> {
    let mut known = whole.attributes.clone();
    let own = [spec.profile.clone(), placement.to_string()];
    known.extend(AttributeName::of_part().into_iter().zip(own));
    let known = attributes::read(&spec.attributes, None, known, facts, host)?;
    let fill = |command: &Vec<Template>| command.iter().map(|text| text.fill(&known)).collect();
    let wanted = spec.found.equals.fill(&known)?;
    let is_it = |device: &&Device| {
        let value = spec.found.value.fill(&device.attributes);
        value.is_ok_and(|value| value == wanted)
    };
    let mut takes = spec.takes.clone();
    let slots = spec.slots_at(placement);
    takes.extend(slots.clone().map(|slot| (slot_name(slot), 1)));
    Ok(PossiblePart {
        profile: spec.profile.clone(),
        slots,
        takes,
        made: made.find(is_it).map(|device| device.id.clone()),
        make: spec.make.iter().map(fill).collect::<Result<_, _>>()?,
        remove: spec.remove.iter().map(fill).collect::<Result<_, _>>()?,
        timeout: spec.timeout,
    })
}

/// The counter of a slot.
fn slot_name(slot: u16) -> String {
    format!("slot-{slot}")
}
