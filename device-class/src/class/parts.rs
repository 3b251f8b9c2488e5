//! Parts of devices, each of which is made when a claim gets it (`[[parts]]`).

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

/// The maximum number of counters of a device, including its slots (Kubernetes, resource.k8s.io/v1,
/// `ResourceSliceMaxCountersPerCounterSet`).
pub(crate) const MAX_COUNTERS: usize = 32;

/// One step by which a part is made or removed.
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
/// A step that writes a text to a file of sysfs, instead of running a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "write_step"))]
pub struct WriteStep {
    /// The path of the file, by template: an absolute path below /sys.
    pub file: PathTemplate,
    /// The text that is written to the file, by template.
    #[serde(rename = "write")]
    pub text: Template,
}

/// # `found`
///
/// The rule by which a part is found among the devices with `part_of` after the part was made. Of
/// the parts of the divided device, the rule selects the one whose `value` is equal to `equals`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "found_part"))]
pub struct PartMatchRule {
    /// A text by template over the attributes of a part of the device that exists.
    pub value: Template,
    /// The expected text, by template over the attributes of the whole device and of this table.
    #[serde(rename = "equals")]
    pub expected_value: Template,
}

/// # `[[parts]]`
///
/// A type of parts that a device can have. boathook-dra makes a part when a claim gets it, and
/// removes the part when its space is needed for another claim. A device whose parts no table
/// describes is not divided. The programs run as root, without a shell, with an empty environment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "parts"))]
pub struct PartProfile {
    /// The key of a fact, by template over the attributes of the whole device. The table then
    /// describes one type of parts for each value of the fact, which is the attribute `each` of
    /// that type.
    #[serde(rename = "each")]
    pub property_key: Option<Template>,
    /// The name by which claims select such a part: lower-case letters, digits, `.`, `+`, `-`, `_`.
    /// Like `placements`, `slots`, `takes` and `has`, it is a template over the attributes of the
    /// whole device and those attributes of this table that do not depend on `placement`.
    pub profile: Template,
    /// Conditions on the attributes of the whole device. Only devices that meet them can have such
    /// parts.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// The slots of the device at which such a part can begin: their numbers, separated by commas,
    /// or the lowest and the highest number, such as `0-7`. A slot belongs to at most one part.
    pub placements: Template,
    /// The number of consecutive slots that the part takes. The first of them is its placement.
    /// Default 1.
    pub slots: Option<Template>,
    /// Other amounts of the device that the part takes: a number for each counter of `[counters]`.
    /// In a class without `[counters]`, a device has the amounts of `has` or, for a counter that
    /// `has` does not set, the amount of the part that takes the most.
    #[serde(default, rename = "takes")]
    pub consumed_counters: BTreeMap<String, Template>,
    /// The amount of each counter that the whole device has, in a class without `[counters]`.
    #[serde(default, rename = "has")]
    pub device_counters: BTreeMap<String, Template>,
    /// Further attributes for the templates of this table. Their sources may use the attributes of
    /// the whole device, `each`, `profile` and `placement`.
    #[serde(default)]
    attributes: Vec<AttributeSource>,
    /// The rule by which the part is found among the devices with `part_of` after it was made.
    #[serde(rename = "found")]
    pub match_rule: PartMatchRule,
    /// Whether all parts of this table are made in one operation, by the steps of any one of them,
    /// and removed in one operation. Parts of other tables of the same device cannot exist at the
    /// same time, and those tables must set this key too.
    #[serde(default, rename = "together")]
    pub is_grouped: bool,
    /// The steps that make the part, one after another: programs, each with absolute path and
    /// arguments, by template; or tables with `file` and `write`. A step with an empty argument or
    /// text is left out.
    #[serde(rename = "make")]
    pub creation_steps: Vec<PartStep>,
    /// The steps that remove the part. They are also done if a step of `make` failed. Each step is
    /// done even if the previous one failed.
    #[serde(rename = "remove")]
    pub removal_steps: Vec<PartStep>,
    /// The time limit of each step in seconds. After it, a program and all processes of its group
    /// are killed, and a write is no longer waited for. Default 30.
    #[serde(default = "default_timeout")]
    pub timeout: Timeout,
}

/// A message for people about the reason why a part is invalid.
pub(crate) type PartError = String;

/// Checks that a text is a valid profile.
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

/// Parses the filled-in template of a key as a whole number. `key` is the name of the key, for the
/// error.
pub(crate) fn parse_number(key: &str, text: &str) -> Result<u64, PartError> {
    let number = text.trim().parse();
    number.map_err(|_| format!("`{key}`: `{}` is not a number", excerpt(text)))
}

/// Parses the placements of a part, and returns the range of slots that a part takes at each
/// placement. `slots` is the number of slots of one part.
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
    /// Returns the templates that may use `placement`: those of the steps, and `equals` of `found`.
    pub(super) fn placement_templates(&self) -> impl Iterator<Item = &Template> {
        let steps = self.creation_steps.iter().chain(&self.removal_steps);
        let steps = steps.flat_map(|step| match step {
            PartStep::Run(command) => command.iter().collect::<Vec<_>>(),
            PartStep::Write(step) => vec![step.file.template(), &step.text],
        });
        steps.chain([&self.match_rule.expected_value])
    }

    /// Returns the templates that are filled in once for all placements of the part.
    pub(super) fn common_templates(&self) -> impl Iterator<Item = &Template> {
        self.consumed_counters
            .values()
            .chain(self.device_counters.values())
            .chain(&self.slots)
            .chain([&self.profile, &self.placements])
    }

    /// Splits the attribute sources at the first source that uses `placement`. The sources before
    /// it are read once for all placements, and the others once for each placement.
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

    /// Checks the rules that do not depend on a device. The other rules are checked for each
    /// device.
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

    /// Returns the programs that make and remove the part.
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
    /// path with an attribute could name any program.
    fn is_allowed(&self) -> bool {
        match self {
            PartStep::Run(command) => command
                .first()
                .is_some_and(|program| program.to_string().starts_with('/') && is_fixed(program)),
            PartStep::Write(step) => step.file.template().to_string().starts_with("/sys/"),
        }
    }
}

/// Returns the default time limit of a step, 30 seconds. It is shorter than the 45 seconds for
/// which the kubelet waits for the preparation of a claim.
fn default_timeout() -> Timeout {
    Timeout::from_seconds(30)
}

/// Returns whether a template contains no attribute.
pub(super) fn is_fixed(template: &Template) -> bool {
    template.attributes().next().is_none()
}

impl<'de> Deserialize<'de> for PartProfile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // This calls the derived function, which is an inherent one because of `remote = "Self"`.
        let parts = Self::deserialize(deserializer)?;
        parts.check().map_err(D::Error::custom)?;
        Ok(parts)
    }
}
