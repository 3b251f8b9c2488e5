//! Parts of devices that are made when a claim gets one.

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

/// The most counters of a device, its slots among them (Kubernetes, resource.k8s.io/v1).
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
/// Instead of a program: a text that is written to a file of sysfs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "write_step"))]
pub struct WriteStep {
    /// The file, by template: an absolute path below /sys.
    pub file: PathTemplate,
    /// The text, by template.
    pub write: Template,
}

/// # `found`
///
/// Which of the devices with `part_of` a made part is: the one of its device whose `value` is
/// that of `equals`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "found_part"))]
pub struct FoundPart {
    /// A text by template over the attributes of the part that was found.
    pub value: Template,
    /// The same by template over the attributes of the whole and of this table.
    pub equals: Template,
}

/// # `[[parts]]`
///
/// A sort of parts that a device can have, of which boathook-dra makes one when a claim gets
/// it, and removes it when its room is needed for another claim. A device whose parts no table
/// describes is not divided. Its programs run as root, without a shell, with an empty
/// environment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "parts"))]
pub struct Parts {
    /// The key of a fact, by template over the attributes of the whole. Each of its values is
    /// such a sort of its own, which has it as the attribute `each`.
    pub each: Option<Template>,
    /// The name by which claims select such a part: lower-case letters, digits, `.`, `+`, `-`,
    /// `_`. It and the next five by template over the attributes of the whole, and those of
    /// this table that do not depend on `placement`.
    pub profile: Template,
    /// Conditions on the attributes of the whole: which devices can have such parts.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// Where in the device such a part can be: the numbers of its first slots, with commas
    /// between them, or the first and last, such as `0-7`. At most one part is at a slot.
    pub placements: Template,
    /// How many slots it takes, from its placement on. Default 1.
    pub slots: Option<Template>,
    /// What else it takes of the device: a number for counters of `[counters]`. If the class
    /// has none, a device has what `has` says, or as much as the part that takes most.
    #[serde(default)]
    pub takes: BTreeMap<String, Template>,
    /// How much the whole has of a counter, in a class without `[counters]`.
    #[serde(default)]
    pub has: BTreeMap<String, Template>,
    /// Further attributes for the templates of this table, which know those of the whole,
    /// `each`, `profile` and `placement`.
    #[serde(default)]
    attributes: Vec<AttributeSource>,
    /// Which of the devices with `part_of` it is when it has been made.
    pub found: FoundPart,
    /// The parts of this table are made all at once, by the steps of any of them, and removed
    /// at once. Other tables of the same devices exclude it, and must have this key as well.
    #[serde(default)]
    pub together: bool,
    /// The steps that make it, one after another: programs, each with absolute path and
    /// arguments, by template; or tables with `file` and `write`. One with an empty argument
    /// or text is left out.
    pub make: Vec<PartStep>,
    /// The steps that remove it, also if it was made by half. Each is done, whatever became
    /// of the one before.
    pub remove: Vec<PartStep>,
    /// The time after which a program is killed with all processes of its group, and a write
    /// is not waited for, in seconds. Default 30.
    #[serde(default = "default_timeout")]
    pub timeout: Timeout,
}

/// Why a part is not what it should be.
pub(crate) type PartFault = String;

/// A profile, if the text is one.
pub(crate) fn profile(text: &str) -> Result<(), PartFault> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".+-_".contains(c);
    match (1..=32).contains(&text.len()) && text.chars().all(fits) {
        true => Ok(()),
        false => {
            let text = excerpt(text);
            Err(format!(
                "the profile `{text}` is not of 1 to 32 of a-z 0-9 . + - _"
            ))
        }
    }
}

/// The number that a text is.
pub(crate) fn number(key: &str, text: &str) -> Result<u64, PartFault> {
    let number = text.trim().parse();
    number.map_err(|_| format!("`{key}`: `{}` is not a number", excerpt(text)))
}

/// The slots of each place, of which each part has `slots`.
pub(crate) fn places(placements: &str, slots: &str) -> Result<Vec<Range<u16>>, PartFault> {
    let slots = number("slots", slots)?;
    let mut places: Vec<Range<u16>> = Vec::new();
    for text in placements.split(',') {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (number("placements", first)?, number("placements", last)?);
        if last < first {
            return Err(format!("`placements`: `{}` names no place", excerpt(text)));
        }
        for first in first..=last {
            let end = first.saturating_add(slots);
            let range = u16::try_from(first).ok().zip(u16::try_from(end).ok());
            let range = range.filter(|(_, end)| usize::from(*end) <= MAX_COUNTERS);
            let Some((first, end)) = range else {
                return Err(format!(
                    "a part ends at the slot {end}; a device has at most {MAX_COUNTERS}"
                ));
            };
            match places.iter().any(|place| place.start == first) {
                _ if slots == 0 => return Err("a part takes at least one of the `slots`".into()),
                true => return Err("`placements` names a place twice".into()),
                false => places.push(first..end),
            }
        }
    }
    Ok(places)
}

impl Parts {
    /// All templates over the attributes of the whole and of the table.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let steps = self.make.iter().chain(&self.remove);
        let steps = steps.flat_map(|step| match step {
            PartStep::Run(command) => command.iter().collect::<Vec<_>>(),
            PartStep::Write(step) => vec![step.file.template(), &step.write],
        });
        steps.chain([&self.found.equals])
    }

    /// Those for all placements.
    pub(super) fn common_templates(&self) -> impl Iterator<Item = &Template> {
        let takes = self.takes.values().chain(self.has.values());
        let takes = takes.chain(&self.slots);
        takes.chain([&self.profile, &self.placements])
    }

    /// The attributes that are read for all placements, and those that are read for each.
    pub(crate) fn attributes(&self) -> (&[AttributeSource], &[AttributeSource]) {
        let placement = AttributeName::of_part().into_iter().next_back();
        let is_of_place = |source: &AttributeSource| {
            source.templates().any(|template| {
                let mut names = template.attributes();
                names.any(|name| Some(name) == placement.as_ref())
            })
        };
        let first = self.attributes.iter().position(is_of_place);
        self.attributes
            .split_at(first.unwrap_or(self.attributes.len()))
    }

    /// Checks what depends on no device; the rest is checked when there is one.
    fn check(&self) -> Result<(), String> {
        if is_fixed(&self.profile) {
            profile(&self.profile.to_string())?;
        }
        if is_fixed(&self.placements) && self.slots.as_ref().is_none_or(is_fixed) {
            let slots = self
                .slots
                .as_ref()
                .map_or("1".to_owned(), Template::to_string);
            places(&self.placements.to_string(), &slots)?;
        }
        let amounts = self.takes.iter().chain(&self.has);
        for (name, amount) in amounts.filter(|(_, amount)| is_fixed(amount)) {
            number(name, &amount.to_string())?;
        }
        for (key, steps) in [("make", &self.make), ("remove", &self.remove)] {
            if steps.is_empty() || !steps.iter().all(PartStep::is_fit) {
                return Err(format!(
                    "`{key}` is a list of programs, each a list that begins with an absolute \
                     path, or of tables with a `file` below /sys"
                ));
            }
        }
        Ok(())
    }

    /// The programs that make and remove it.
    pub fn programs(&self) -> impl Iterator<Item = &Template> {
        let steps = self.make.iter().chain(&self.remove);
        steps.filter_map(|step| match step {
            PartStep::Run(command) => command.first(),
            PartStep::Write(_) => None,
        })
    }
}

impl PartStep {
    /// A path by template could be any program.
    fn is_fit(&self) -> bool {
        match self {
            PartStep::Run(command) => command
                .first()
                .is_some_and(|program| program.to_string().starts_with('/') && is_fixed(program)),
            PartStep::Write(step) => step.file.template().to_string().starts_with("/sys/"),
        }
    }
}

/// The kubelet waits 45 s for an answer.
fn default_timeout() -> Timeout {
    Timeout::of_seconds(30)
}

/// Whether a template is a text as it is.
pub(super) fn is_fixed(template: &Template) -> bool {
    template.attributes().next().is_none()
}

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The derived function, by `remote`.
        let parts = Self::deserialize(deserializer)?;
        parts.check().map_err(D::Error::custom)?;
        Ok(parts)
    }
}
