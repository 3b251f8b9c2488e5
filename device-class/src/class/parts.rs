//! Parts of devices that are made when a claim gets one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;

use super::attribute::AttributeSource;
use super::condition::Condition;
use super::prepare::Timeout;
use crate::template::Template;

/// The most counters of a device, its slots among them (Kubernetes, resource.k8s.io/v1).
pub(super) const MAX_COUNTERS: usize = 32;

/// The time after which a program is killed. The kubelet waits 45 s for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A sort of parts that a device can have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawParts")]
pub struct Parts {
    pub profile: String,
    pub require: Vec<Condition>,
    /// The first slot of each place.
    pub placements: BTreeSet<u16>,
    /// How many slots a part takes.
    pub slots: u16,
    /// What it takes of the counters.
    pub takes: BTreeMap<String, u64>,
    pub attributes: Vec<AttributeSource>,
    pub found: FoundPart,
    pub make: Vec<Vec<Template>>,
    pub remove: Vec<Vec<Template>>,
    pub timeout: Duration,
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
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "parts"))]
pub(super) struct RawParts {
    /// The name by which claims select such a part: lower-case letters, digits, `.`, `+`, `-`.
    profile: String,
    /// Conditions on the attributes of the whole: which devices can have such parts.
    #[serde(default)]
    require: Vec<Condition>,
    /// Where in the device such a part can be: the numbers of its first slots. At most one
    /// part is at a slot.
    placements: Vec<u16>,
    /// How many slots it takes, from its placement on. Default 1.
    slots: Option<u16>,
    /// What else it takes of the device: a number for counters of `[counters]`.
    #[serde(default)]
    takes: BTreeMap<String, u64>,
    /// Further attributes for the templates of this table, which know those of the whole,
    /// `profile` and `placement`.
    #[serde(default)]
    attributes: Vec<AttributeSource>,
    /// Which of the devices with `part_of` it is when it has been made.
    found: FoundPart,
    /// Programs that make it, one after another: absolute path and arguments, by template.
    make: Vec<Vec<Template>>,
    /// Programs that remove it, also if it was made by half. Each is run, whatever the status
    /// of the one before.
    remove: Vec<Vec<Template>>,
    /// The time after which a program is killed with all processes of its group, in seconds.
    /// Default 30.
    timeout: Option<Timeout>,
}

impl Parts {
    /// The slots that a part at a placement takes.
    pub fn slots_at(&self, placement: u16) -> Range<u16> {
        placement..placement.saturating_add(self.slots)
    }

    /// All templates over the attributes of the whole and of the table.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let commands = self.make.iter().chain(&self.remove).flatten();
        commands.chain([&self.found.equals])
    }
}

impl TryFrom<RawParts> for Parts {
    type Error = String;

    fn try_from(raw: RawParts) -> Result<Self, String> {
        let fits =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
        let profile = raw.profile;
        if !(1..=32).contains(&profile.len()) || !profile.chars().all(fits) {
            let profile = crate::name::excerpt(&profile);
            return Err(format!(
                "the profile `{profile}` is not of 1 to 32 of a-z 0-9 . + -"
            ));
        }
        let slots = raw.slots.unwrap_or(1);
        let placements: BTreeSet<u16> = crate::inserted(raw.placements.iter().copied());
        let end = |first: &u16| usize::from(*first) + usize::from(slots);
        let ends = placements.iter().map(end).max();
        match ends {
            None => return Err("`placements` names no place".into()),
            _ if slots == 0 => return Err("a part takes at least one of the `slots`".into()),
            _ if placements.len() < raw.placements.len() => {
                return Err("`placements` names a place twice".into());
            }
            Some(end) if end > MAX_COUNTERS => {
                return Err(format!(
                    "a part ends at the slot {end}; a device has at most {MAX_COUNTERS}"
                ));
            }
            Some(_) => {}
        }
        for (key, commands) in [("make", &raw.make), ("remove", &raw.remove)] {
            // A path by template could be any program.
            let is_path = |command: &Vec<Template>| {
                let program = command.first();
                program.is_some_and(|program| {
                    program.to_string().starts_with('/') && program.attributes().next().is_none()
                })
            };
            if commands.is_empty() || !commands.iter().all(is_path) {
                return Err(format!(
                    "`{key}` is a list of programs, each a list that begins with an absolute path"
                ));
            }
        }
        Ok(Parts {
            profile,
            require: raw.require,
            placements,
            slots,
            takes: raw.takes,
            attributes: raw.attributes,
            found: raw.found,
            make: raw.make,
            remove: raw.remove,
            timeout: raw.timeout.map_or(TIMEOUT, Timeout::get),
        })
    }
}
