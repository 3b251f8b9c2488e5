//! Computes the partitions ("parts") into which devices can be divided, and finds those that exist
//! now.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::attributes::{self, FileReader};
use super::{Device, Inventory, find_host_program, source};
use crate::class::{self, DeviceClass, MAX_COUNTERS, PartProfile, PartStep, WriteStep};
use crate::driver_properties::DriverProperties;
use crate::host::HostView;
use crate::name::{AttributeName, DeviceId, excerpt};
use crate::template::{Attributes, Template};

/// A device, and the partitions into which it can be divided.
#[derive(Debug, Clone)]
pub struct DeviceDivision {
    pub whole_device: Device,
    /// The counters of the whole device and their amounts, for example of memory. The partitions
    /// share these amounts. Each slot of the device is also a counter, with the amount 1.
    pub counters: BTreeMap<String, u64>,
    /// The partitions that the device can have. Several of them can exist at the same time if
    /// together they consume no more of any counter than the device has.
    pub parts: Vec<PossiblePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossiblePart {
    pub profile: String,
    pub slots: Range<u16>,
    /// The amount of each counter of the whole device that the partition consumes.
    pub consumed_counters: BTreeMap<String, u64>,
    /// The device id of the partition. `None` if the partition does not exist now.
    pub existing_id: Option<DeviceId>,
    /// Whether one operation creates all partitions with this profile, and one operation removes
    /// all of them. Otherwise they are created and removed one by one.
    pub is_grouped: bool,
    /// The steps that create the partition, in this order.
    pub creation_steps: Vec<PartAction>,
    /// The steps that remove the partition, in this order. All of them are done, even if one fails.
    pub removal_steps: Vec<PartAction>,
    /// The time limit for each step. A program that runs longer is killed.
    pub timeout: Duration,
}

/// A step to create or remove a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartAction {
    /// Runs a program of the host. `command` is its path and arguments. `library_path` has
    /// directories with libraries that the program needs and the host's ld.so.cache does not list.
    Run {
        command: Vec<String>,
        library_path: Vec<PathBuf>,
    },
    /// Writes a text to a file in sysfs. The fields are the path of the file and the text.
    Write(PathBuf, String),
}

impl PossiblePart {
    /// Returns the first slot of the partition. The profile and the first slot together identify a
    /// partition of a device.
    pub fn placement(&self) -> u16 {
        self.slots.start
    }

    /// Returns whether two partitions of the same device need the same slot, so that they cannot
    /// both exist at the same time.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.slots.start < other.slots.end && other.slots.start < self.slots.end
    }
}

/// A message that explains why a device cannot be divided.
struct DivisionError(String);

impl<E: std::error::Error> From<E> for DivisionError {
    fn from(error: E) -> Self {
        DivisionError(error.to_string())
    }
}

/// Returns the devices that can be divided into partitions, or that are already divided. Also
/// returns a warning for each device that cannot be divided as the class file describes.
pub fn list_divisible_devices(
    class: &DeviceClass,
    inventory: &Inventory,
    host: &dyn HostView,
) -> (Vec<DeviceDivision>, Vec<String>) {
    let (mut divisions, mut warnings) = (Vec::new(), Vec::new());
    if class.spec.parts.is_empty() {
        return (divisions, warnings);
    }
    // Warnings about the driver properties are dropped here, because the inventory already has
    // them.
    let properties = DriverProperties::read(class, host, &mut Vec::new());
    let whole_devices = inventory
        .devices
        .iter()
        .filter(|device| device.part_of.is_none())
        .chain(&inventory.partitioned_devices)
        .chain(&inventory.parts_only_devices)
        .filter(|whole_device| whole_device.replicas.is_none());
    for whole_device in whole_devices {
        match compute_division(class, whole_device, inventory, &properties, host) {
            Ok(division) if division.parts.is_empty() => {}
            Ok(division) => divisions.push(division),
            Err(DivisionError(reason)) => {
                warnings.push(format!("{}: is not divided: {reason}", whole_device.id));
            }
        }
    }
    (divisions, warnings)
}

/// Computes the partitions into which `whole_device` can be divided. Also computes the counters,
/// which limit the partitions that can exist at the same time.
fn compute_division(
    class: &DeviceClass,
    whole_device: &Device,
    inventory: &Inventory,
    properties: &DriverProperties,
    host: &dyn HostView,
) -> Result<DeviceDivision, DivisionError> {
    let existing_parts = inventory
        .devices
        .iter()
        .filter(|device| device.part_of.as_ref() == Some(&whole_device.id));
    let (mut profiles, mut profile_counters) = (Vec::new(), BTreeMap::new());
    for spec in &class.spec.parts {
        for profile_attributes in list_profile_attributes(spec, whole_device, properties)? {
            let mut conditions = spec.require.iter();
            if conditions
                .all(|condition| source::is_condition_met(condition, &profile_attributes, host))
            {
                profiles.push(list_parts_of_profile(
                    class,
                    spec,
                    profile_attributes,
                    existing_parts.clone(),
                    &mut profile_counters,
                    properties,
                    host,
                )?);
            }
        }
    }
    let exclusion_counters = add_exclusion_counters(&mut profiles)?;
    let parts = profiles.concat();
    let is_described = |device: &&Device| {
        parts
            .iter()
            .any(|part| part.existing_id.as_ref() == Some(&device.id))
    };
    match existing_parts.clone().find(|device| !is_described(device)) {
        Some(undescribed_part) if !parts.is_empty() => {
            return Err(DivisionError(format!(
                "its part {} is none of a profile in [[parts]]: remove it, or describe it in the \
                 class",
                undescribed_part.id
            )));
        }
        _ => {}
    }
    let mut counters = BTreeMap::new();
    for (name, amount) in &class.spec.counters {
        let value = amount.fill(&whole_device.attributes)?;
        let name = name.clone();
        match value.parse() {
            Ok(amount) => counters.insert(name, amount),
            Err(_) => {
                let value = excerpt(&value);
                let reason = format!("the counter {name} is `{value}`, which is not a number");
                return Err(DivisionError(reason));
            }
        };
    }
    let class_has_counters = !counters.is_empty();
    let slots = parts.iter().map(|part| part.slots.end).max().unwrap_or(0);
    counters.extend((0..slots).map(|slot| (slot_counter_name(slot), 1)));
    counters.extend(exclusion_counters);
    let used_counters = parts.iter().flat_map(|part| &part.consumed_counters);
    for (name, amount) in used_counters.filter(|_| !class_has_counters) {
        let counter_total: &mut u64 = counters.entry(name.clone()).or_default();
        *counter_total = (*counter_total).max(*amount);
    }
    counters.extend(profile_counters);
    if counters.len() > MAX_COUNTERS {
        return Err(DivisionError(format!(
            "{} slots and counters are more than {MAX_COUNTERS}",
            counters.len()
        )));
    }
    Ok(DeviceDivision {
        whole_device: whole_device.clone(),
        counters,
        parts,
    })
}

/// Returns one set of attributes for each profile of a `[[parts]]` table. A set includes the
/// attributes of the whole device. Usually a table has one profile. With the key `each`, which
/// names a driver property, the table has one profile for each value of the property.
fn list_profile_attributes(
    spec: &PartProfile,
    whole_device: &Device,
    properties: &DriverProperties,
) -> Result<Vec<Attributes>, DivisionError> {
    let clone_device_attributes = || whole_device.attributes.clone();
    let Some(key) = &spec.property_key else {
        return Ok(vec![clone_device_attributes()]);
    };
    let key = key.fill(&whole_device.attributes)?;
    let add_property_value = |value: &String| {
        let mut attributes = clone_device_attributes();
        attributes.insert(AttributeName::property_value_name(), value.clone());
        attributes
    };
    Ok(properties
        .values(&key)
        .iter()
        .map(add_property_value)
        .collect())
}

/// Returns the possible partitions with one profile: one for each first slot (placement). Also adds
/// the amounts in `has` of the `[[parts]]` table to `counters`, the counters of the whole device.
fn list_parts_of_profile<'a>(
    class: &DeviceClass,
    spec: &PartProfile,
    attributes: Attributes,
    existing_parts: impl Iterator<Item = &'a Device> + Clone,
    counters: &mut BTreeMap<String, u64>,
    properties: &DriverProperties,
    host: &dyn HostView,
) -> Result<Vec<PossiblePart>, DivisionError> {
    let (common_sources, placement_sources) = spec.split_attributes();
    let attributes = attributes::read_attributes(
        common_sources,
        None,
        attributes,
        properties,
        &mut FileReader::new(host),
    )?;
    let profile = spec.profile.fill(&attributes)?;
    class::check_profile(&profile).map_err(DivisionError)?;
    let read_amount = |(name, amount): (&String, &Template)| {
        let amount =
            class::parse_number(name, &amount.fill(&attributes)?).map_err(DivisionError)?;
        Ok((name.clone(), amount))
    };
    let consumed_counters: BTreeMap<_, _> = spec
        .consumed_counters
        .iter()
        .map(read_amount)
        .collect::<Result<_, DivisionError>>()?;
    let device_counters: Vec<_> = spec
        .device_counters
        .iter()
        .map(read_amount)
        .collect::<Result<_, DivisionError>>()?;
    counters.extend(device_counters);
    let placements = spec.placements.fill(&attributes)?;
    let slots = spec.slots.as_ref().map(|slots| slots.fill(&attributes));
    let slots = slots.unwrap_or_else(|| Ok("1".to_owned()))?;
    let slot_ranges = class::parse_placements(&placements, &slots).map_err(DivisionError)?;
    let to_part = |slots: Range<u16>| {
        let mut attributes = attributes.clone();
        let part_values = [profile.clone(), slots.start.to_string()];
        attributes.extend(
            AttributeName::part_attributes()
                .into_iter()
                .zip(part_values),
        );
        let attributes = attributes::read_attributes(
            placement_sources,
            None,
            attributes,
            properties,
            &mut FileReader::new(host),
        )?;
        let expected = spec.match_rule.expected_value.fill(&attributes)?;
        let is_this_part = |device: &&Device| {
            let value = spec.match_rule.value.fill(&device.attributes);
            value.is_ok_and(|value| value == expected)
        };
        let mut part_counters = consumed_counters.clone();
        part_counters.extend(slots.clone().map(|slot| (slot_counter_name(slot), 1)));
        Ok(PossiblePart {
            profile: profile.clone(),
            slots,
            consumed_counters: part_counters,
            existing_id: existing_parts
                .clone()
                .find(is_this_part)
                .map(|device| device.id.clone()),
            is_grouped: spec.is_grouped,
            creation_steps: fill_steps(class, &spec.creation_steps, &attributes, host)?,
            removal_steps: fill_steps(class, &spec.removal_steps, &attributes, host)?,
            timeout: spec.timeout.get(),
        })
    };
    slot_ranges.into_iter().map(to_part).collect()
}

/// Fills in the steps for one partition, and finds their programs on the host. A step is left out
/// if an argument of its program, or the text that it writes, is empty.
fn fill_steps(
    class: &DeviceClass,
    specs: &[PartStep],
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<PartAction>, DivisionError> {
    let mut steps = Vec::new();
    for spec in specs {
        match spec {
            PartStep::Run(command) => {
                let command = command.iter().map(|text| text.fill(attributes));
                let mut command = command.collect::<Result<Vec<_>, _>>()?;
                if command.iter().any(String::is_empty) {
                    continue;
                }
                let mut library_path = Vec::new();
                if let Some(program) = command.first_mut() {
                    let host_program = find_host_program(class, Path::new(program), host);
                    *program = host_program.path.to_string_lossy().into_owned();
                    library_path = host_program.library_path;
                }
                steps.push(PartAction::Run {
                    command,
                    library_path,
                });
            }
            PartStep::Write(WriteStep { file, text }) => {
                let text = text.fill(attributes)?;
                if !text.is_empty() {
                    steps.push(PartAction::Write(file.fill(attributes)?, text));
                }
            }
        }
    }
    Ok(steps)
}

/// Adds counters to profiles with `together`, so that the scheduler never allocates partitions of
/// two profiles at the same time. Each partition gets a counter of its own and consumes all of it.
/// Each partition of another profile consumes one unit of the same counter, so only one of the two
/// can be allocated. The profile with the most partitions needs no counters, because those of the
/// other profiles exclude it. Returns the new counters.
fn add_exclusion_counters(
    profiles: &mut [Vec<PossiblePart>],
) -> Result<BTreeMap<String, u64>, DivisionError> {
    let mut grouped_flags = profiles.iter().flatten().map(|part| part.is_grouped);
    match (
        profiles.len(),
        grouped_flags.clone().all(|is_grouped| is_grouped),
        grouped_flags.any(|is_grouped| is_grouped),
    ) {
        (0 | 1, ..) | (_, _, false) => return Ok(BTreeMap::new()),
        (_, false, true) => {
            let reason = "[[parts]] with `together` and without are of the same device";
            return Err(DivisionError(reason.to_owned()));
        }
        (_, true, true) => {}
    }
    let largest_profile = (0..profiles.len()).max_by_key(|profile| profiles[*profile].len());
    let part_count = profiles.iter().map(Vec::len).max().unwrap_or(0) as u64;
    let mut counters = BTreeMap::new();
    for profile in (0..profiles.len()).filter(|profile| Some(*profile) != largest_profile) {
        for index in 0..profiles[profile].len() {
            let name = format!(
                "{SLOT_PREFIX}{profile}-{}",
                profiles[profile][index].placement()
            );
            for (other_profile, parts) in profiles.iter_mut().enumerate() {
                for (other_index, part) in parts.iter_mut().enumerate() {
                    let amount = match (other_profile == profile, other_index == index) {
                        (true, true) => part_count,
                        (true, false) => continue,
                        (false, _) => 1,
                    };
                    part.consumed_counters.insert(name.clone(), amount);
                }
            }
            counters.insert(name, part_count);
        }
    }
    Ok(counters)
}

/// The prefix of the names of counters for slots, such as `slot-3`. A counter in a class file must
/// not have this prefix.
const SLOT_PREFIX: &str = "slot-";

fn slot_counter_name(slot: u16) -> String {
    format!("{SLOT_PREFIX}{slot}")
}
