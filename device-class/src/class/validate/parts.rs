//! Checks the rules for `[[parts]]`, the partitions of devices.

use std::collections::BTreeSet;

use super::known_attributes::KnownAttributes;
use crate::class::parts::is_fixed;
use crate::class::{ClassSpec, Source};
use crate::name::AttributeName;
use crate::strict_toml::RuleViolation;

/// Checks the rules for `[[parts]]` that are not about attributes: the names of profiles and
/// counters, and keys that exclude each other.
pub(super) fn check(spec: &ClassSpec) -> Result<(), RuleViolation> {
    let refuse = |text: &str, reason: &str| Err(RuleViolation::new(text, reason));
    // `[counters]` without `[[parts]]` is allowed. A class with `extends` cannot remove the
    // `[counters]` of the extended class.
    if spec.parts.is_empty() {
        return Ok(());
    }
    if spec.discover.iter().all(|source| source.part_of.is_none()) {
        return refuse(
            "[[parts]]",
            "[[parts]] are made, but no [[discover]] with `part_of` finds them",
        );
    }
    let counters_of_parts = spec.parts.iter().flat_map(|parts| {
        let consumed_counters = parts.consumed_counters.keys();
        consumed_counters.chain(parts.device_counters.keys())
    });
    if let Some(name) = spec
        .counters
        .keys()
        .chain(counters_of_parts)
        .find(|name| !is_counter_name(name))
    {
        let reason = format!(
            "the counter `{}` is not a name of at most 32 of a-z 0-9 -, or begins with `slot-`",
            crate::name::excerpt(name)
        );
        return refuse(name, &reason);
    }
    let mut device_names = BTreeSet::new();
    for (number, parts) in spec.parts.iter().enumerate() {
        let to_table_error = |error: RuleViolation| error.in_table("[[parts]]", number);
        let profile = parts.profile.to_string();
        // In the name of a device in a ResourceSlice, `.`, `+` and `_` are replaced by `-`, because
        // they are not allowed. So two profiles that differ only in these characters would get the
        // same name.
        if is_fixed(&parts.profile) && !device_names.insert(profile.replace(['.', '+', '_'], "-")) {
            let reason = format!("the profile `{profile}` has the name of another one");
            return refuse(&profile, &reason).map_err(to_table_error);
        }
        if !spec.counters.is_empty() && !parts.device_counters.is_empty() {
            return refuse("has", "a class has either [counters] or `has`").map_err(to_table_error);
        }
        let mut consumed_counters = parts
            .consumed_counters
            .keys()
            .filter(|_| !spec.counters.is_empty());
        if let Some(name) = consumed_counters.find(|name| !spec.counters.contains_key(*name)) {
            let name = crate::name::excerpt(name);
            let reason = format!("`takes` names `{name}`, which is not in [counters]");
            return refuse(&name, &reason).map_err(to_table_error);
        }
    }
    Ok(())
}

/// Checks that `[[parts]]` uses only attributes that the devices of this `[[discover]]` entry have.
pub(super) fn check_source(
    spec: &ClassSpec,
    source: &Source,
    known_attributes: &KnownAttributes,
) -> Result<(), RuleViolation> {
    if source.part_of.is_some() {
        let mut parts = spec.parts.iter().enumerate();
        return parts.try_for_each(|(number, parts)| {
            let result = known_attributes.check_template(&parts.match_rule.value);
            result.map_err(|error| error.in_table("[[parts]]", number))
        });
    }
    if !spec.parts.is_empty() {
        let mut counters = spec.counters.values();
        counters.try_for_each(|counter| known_attributes.check_template(counter))?;
    }
    for (number, parts) in spec.parts.iter().enumerate() {
        let check = || {
            let mut known_attributes = known_attributes.clone();
            if let Some(key) = &parts.property_key {
                known_attributes.check_template(key)?;
                known_attributes
                    .names
                    .insert(AttributeName::property_value_name());
            }
            known_attributes.check_conditions(&parts.require)?;
            let (common_sources, placement_sources) = parts.split_attributes();
            known_attributes.add_sources(common_sources)?;
            let mut templates = parts.common_templates();
            templates.try_for_each(|template| known_attributes.check_template(template))?;
            known_attributes
                .names
                .extend(AttributeName::part_attributes());
            known_attributes.add_sources(placement_sources)?;
            parts
                .placement_templates()
                .try_for_each(|template| known_attributes.check_template(template))
        };
        check().map_err(|error: RuleViolation| error.in_table("[[parts]]", number))?;
    }
    Ok(())
}

/// Returns whether a text is a valid name of a counter: a DNS label (RFC 1123) of at most 32
/// characters that does not begin with `slot-`. A name with `slot-` is that of a slot's counter.
fn is_counter_name(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=32).contains(&name.len())
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
        && name.chars().all(|c| is_alphanumeric(c) || c == '-')
        && !name.starts_with("slot-")
}
