//! Partitions of devices: a partition is made when a resource claim needs it (`[[parts]]`).

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::attribute::AttributeSource;
use super::condition::Condition;
use super::path_template::PathTemplate;
use super::prepare::Timeout;
use crate::name::{AttributeName, excerpt};
use crate::template::Template;

/// The maximum number of counters of a device, which Kubernetes limits (resource.k8s.io/v1,
/// `ResourceSliceMaxCountersPerCounterSet`). Each slot of a device is a counter too.
pub(crate) const MAX_COUNTERS: usize = 32;

/// One step to make or remove a partition of a device.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "a list with a program and its arguments, or a table with `file` and `write`"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "part_step"))]
pub enum PartStep {
    Run(Vec<Template>),
    Write(WriteStep),
}

/// # `make` and `remove`
///
/// A step that writes a text to a file in sysfs, instead of running a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "write_step"))]
pub struct WriteStep {
    /// A template for the path of the file: an absolute path below /sys.
    pub file: PathTemplate,
    /// A template for the text that is written to the file.
    #[serde(rename = "write")]
    pub text: Template,
}

/// # `found`
///
/// The rule that identifies a new part (partition of a device) after it was made. The part is a
/// device that a `[[discover]]` with `part_of` finds. Of all parts of the divided device, it is the
/// one whose `value` equals `equals`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "found_part"))]
pub struct PartMatchRule {
    /// A template for a text that identifies a part. It may use the attributes of a part that was
    /// found.
    pub value: Template,
    /// A template for the text that `value` must equal. It may use the attributes of the whole
    /// device and of this table.
    #[serde(rename = "equals")]
    pub expected_value: Template,
}

/// # `[[parts]]`
///
/// A type of part (partition) that a device can have. boathook-dra makes a part when a claim needs
/// it, and removes the part when another claim needs its space. A device to which no table applies
/// is not divided. The programs run as root, without a shell and with an empty environment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "parts"))]
pub struct PartProfile {
    /// A template for the key of facts. It may use the attributes of the whole device. The table
    /// then describes one type of part for each fact with this key. Its other templates use the
    /// value of the fact as the attribute `each`.
    #[serde(rename = "each")]
    pub property_key: Option<Template>,
    /// A template for the name by which claims select such a part. The name has lower-case letters,
    /// digits, `.`, `+`, `-` and `_`. Like the templates of `placements`, `slots`, `takes` and
    /// `has`, it may use the attributes of the whole device, and those attributes of this table
    /// that do not depend on `placement`.
    pub profile: Template,
    /// Conditions on the attributes of the whole device. Only a device that meets them can have
    /// such parts.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// The slots of the device at which such a part can begin: their numbers, separated by commas,
    /// or the lowest and the highest number, such as `0-7`. A slot belongs to at most one part.
    pub placements: Template,
    /// The number of consecutive slots that the part takes. The first of these slots is the part's
    /// placement. Default 1.
    pub slots: Option<Template>,
    /// What else the part takes from the device: a number for each counter in `[counters]`. In a
    /// class without `[counters]`, `has` sets how much a device has. A counter that `has` does not
    /// set has as much as the part that takes the most.
    #[serde(default, rename = "takes")]
    pub consumed_counters: BTreeMap<String, Template>,
    /// In a class without `[counters]`: how much of each counter the whole device has.
    #[serde(default, rename = "has")]
    pub device_counters: BTreeMap<String, Template>,
    /// Additional attributes for the templates of this table. They may be computed from the
    /// attributes of the whole device, `each`, `profile` and `placement`.
    #[serde(default)]
    attributes: Vec<AttributeSource>,
    /// The rule that identifies the new part among the devices with `part_of` after the part was
    /// made.
    #[serde(rename = "found")]
    pub match_rule: PartMatchRule,
    /// Whether all parts of this table are made in one operation, with the steps of any one of
    /// them, and also removed in one operation. Parts of other tables cannot exist on the device at
    /// the same time. Those tables must set this key too.
    #[serde(default, rename = "together")]
    pub is_grouped: bool,
    /// The steps that make the part, one after another. A step is a program, as templates for its
    /// absolute path and its arguments, or a table with `file` and `write`. A step with an empty
    /// argument or text is skipped.
    #[serde(rename = "make")]
    pub creation_steps: Vec<PartStep>,
    /// The steps that remove the part. All of them are done, even if one fails. They are also done
    /// if a step of `make` has failed.
    #[serde(rename = "remove")]
    pub removal_steps: Vec<PartStep>,
    /// The time limit of each step in seconds. When it is over, a program is killed with all
    /// processes of its process group, and a write is given up. Default 30.
    #[serde(default = "default_timeout")]
    pub timeout: Timeout,
}

/// A message for users that explains why a partition is invalid.
pub(crate) type PartError = String;

/// Checks that a text is a valid name for a type of partition, such as `1c.10gb`, by which resource
/// claims select it.
pub(crate) fn check_profile(text: &str) -> Result<(), PartError> {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".+-_".contains(c);
    if (1..=32).contains(&text.len()) && text.chars().all(is_valid) {
        Ok(())
    } else {
        let text = excerpt(text);
        Err(format!(
            "the profile `{text}` is not of 1 to 32 of a-z 0-9 . + - _"
        ))
    }
}

/// Parses a value of `[[parts]]` as an integer that is not negative. The error names `key`, the key
/// of the class file that has the value.
pub(crate) fn parse_number(key: &str, text: &str) -> Result<u64, PartError> {
    let number = text.trim().parse();
    number.map_err(|_| format!("`{key}`: `{}` is not a number", excerpt(text)))
}

/// Parses the placements of a partition: the slots at which it can begin, such as `0-3` or `0,4`.
/// Returns, for each placement, the range of slots that a partition of `slots` slots takes.
pub(crate) fn parse_placements(
    placements: &str,
    slots: &str,
) -> Result<Vec<Range<u16>>, PartError> {
    let slots = parse_number("slots", slots)?;
    let mut slot_ranges: Vec<Range<u16>> = Vec::new();
    for text in placements.split(',') {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (
            parse_number("placements", first)?,
            parse_number("placements", last)?,
        );
        if last < first {
            return Err(format!("`placements`: `{}` names no place", excerpt(text)));
        }
        for start in first..=last {
            let end = start.saturating_add(slots);
            let range = u16::try_from(start).ok().zip(u16::try_from(end).ok());
            let range = range.filter(|(_, end)| usize::from(*end) <= MAX_COUNTERS);
            let Some((start, end)) = range else {
                return Err(format!(
                    "a part ends at the slot {end}; a device has at most {MAX_COUNTERS}"
                ));
            };
            if slots == 0 {
                return Err("a part takes at least one of the `slots`".into());
            }
            if slot_ranges.iter().any(|other| other.start == start) {
                return Err("`placements` names a place twice".into());
            }
            slot_ranges.push(start..end);
        }
    }
    Ok(slot_ranges)
}

impl PartProfile {
    /// Returns the templates that may use `placement`: those in the steps, and `equals` of `found`.
    pub(super) fn placement_templates(&self) -> impl Iterator<Item = &Template> {
        let steps = self.creation_steps.iter().chain(&self.removal_steps);
        let steps = steps.flat_map(|step| match step {
            PartStep::Run(command) => command.iter().collect::<Vec<_>>(),
            PartStep::Write(step) => vec![step.file.template(), &step.text],
        });
        steps.chain([&self.match_rule.expected_value])
    }

    /// Returns the templates that are the same for all placements, so that they are filled in once.
    pub(super) fn common_templates(&self) -> impl Iterator<Item = &Template> {
        self.consumed_counters
            .values()
            .chain(self.device_counters.values())
            .chain(&self.slots)
            .chain([&self.profile, &self.placements])
    }

    /// Splits the entries of `attributes` before the first one that uses `placement`. The entries
    /// before it are read once for all placements, and the rest are read once for each placement.
    pub(crate) fn split_attributes(&self) -> (&[AttributeSource], &[AttributeSource]) {
        let placement = AttributeName::part_attributes().into_iter().next_back();
        let uses_placement = |source: &AttributeSource| {
            source.templates().any(|template| {
                let mut names = template.attributes();
                names.any(|name| Some(name) == placement.as_ref())
            })
        };
        let first_placement_source = self.attributes.iter().position(uses_placement);
        self.attributes
            .split_at(first_placement_source.unwrap_or(self.attributes.len()))
    }

    /// Checks the steps, and those templates that have no attribute. The other templates can be
    /// checked only when a device's attributes are filled in.
    fn check(&self) -> Result<(), String> {
        if is_fixed(&self.profile) {
            check_profile(&self.profile.to_string())?;
        }
        if is_fixed(&self.placements) && self.slots.as_ref().is_none_or(is_fixed) {
            let slots = self
                .slots
                .as_ref()
                .map_or("1".to_owned(), Template::to_string);
            parse_placements(&self.placements.to_string(), &slots)?;
        }
        let amounts = self.consumed_counters.iter().chain(&self.device_counters);
        for (name, amount) in amounts.filter(|(_, amount)| is_fixed(amount)) {
            parse_number(name, &amount.to_string())?;
        }
        for (key, steps) in [
            ("make", &self.creation_steps),
            ("remove", &self.removal_steps),
        ] {
            if steps.is_empty() || !steps.iter().all(PartStep::is_allowed) {
                return Err(format!(
                    "`{key}` is a list of programs, each a list that begins with an absolute \
                     path, or of tables with a `file` below /sys"
                ));
            }
        }
        Ok(())
    }

    /// Returns the absolute paths of the programs that make and remove the partition. These
    /// templates have no attributes.
    pub fn programs(&self) -> impl Iterator<Item = &Template> {
        let steps = self.creation_steps.iter().chain(&self.removal_steps);
        steps.filter_map(|step| match step {
            PartStep::Run(command) => command.first(),
            PartStep::Write(_) => None,
        })
    }
}

impl PartStep {
    /// Returns whether the step runs a program at a fixed path, or writes to a file below /sys. A
    /// program's path must not contain an attribute, because it could then name any program.
    fn is_allowed(&self) -> bool {
        match self {
            PartStep::Run(command) => command
                .first()
                .is_some_and(|program| program.to_string().starts_with('/') && is_fixed(program)),
            PartStep::Write(step) => step.file.template().to_string().starts_with("/sys/"),
        }
    }
}

/// Returns the default time limit of a step. It is shorter than the 45 seconds for which the
/// kubelet waits until a claim is prepared.
fn default_timeout() -> Timeout {
    Timeout::from_seconds(30)
}

/// Returns whether a template contains no attribute, so that its text is the same for all devices.
pub(super) fn is_fixed(template: &Template) -> bool {
    template.attributes().next().is_none()
}

impl<'de> Deserialize<'de> for PartProfile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // This is not a recursion: `remote = "Self"` makes serde derive an inherent function of
        // this name, which comes before that of the trait.
        let parts = Self::deserialize(deserializer)?;
        parts.check().map_err(D::Error::custom)?;
        Ok(parts)
    }
}
