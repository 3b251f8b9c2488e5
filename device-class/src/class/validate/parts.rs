//! Checks the rules for `[[parts]]`.

use std::collections::BTreeSet;

use super::known::KnownAttributes;
use crate::class::parts::is_fixed;
use crate::class::{ClassSpec, Source};
use crate::name::AttributeName;
use crate::strict_toml::BrokenRule;

/// Checks the rules for `[[parts]]` that do not concern attributes.
pub(super) fn check(spec: &ClassSpec) -> Result<(), BrokenRule> {
    let wrong = |text: &str, reason: &str| Err(BrokenRule::new(text, reason));
    // `[counters]` without `[[parts]]` are accepted, because a class that extends another one
    // cannot remove the `[counters]` of that class.
    if spec.parts.is_empty() {
        return Ok(());
    }
    if spec.discover.iter().all(|source| source.part_of.is_none()) {
        return wrong(
            "[[parts]]",
            "[[parts]] are made, but no [[discover]] with `part_of` finds them",
        );
    }
    let takes = spec.parts.iter();
    let takes = takes.flat_map(|parts| parts.takes.keys().chain(parts.has.keys()));
    if let Some(name) = spec
        .counters
        .keys()
        .chain(takes)
        .find(|name| !is_counter(name))
    {
        let reason = format!(
            "the counter `{}` is not a name of at most 32 of a-z 0-9 -, or begins with `slot-`",
            crate::name::excerpt(name)
        );
        return wrong(name, &reason);
    }
    let mut labels = BTreeSet::new();
    for (number, parts) in spec.parts.iter().enumerate() {
        let in_table = |error: BrokenRule| error.in_table("[[parts]]", number);
        let profile = parts.profile.to_string();
        // A device name in a ResourceSlice may not have `.`, `+` or `_`, so two profiles that
        // differ only in these characters would get the same name.
        if is_fixed(&parts.profile) && !labels.insert(profile.replace(['.', '+', '_'], "-")) {
            let reason = format!("the profile `{profile}` has the name of another one");
            return wrong(&profile, &reason).map_err(in_table);
        }
        if !spec.counters.is_empty() && !parts.has.is_empty() {
            return wrong("has", "a class has either [counters] or `has`").map_err(in_table);
        }
        let mut taken = parts.takes.keys().filter(|_| !spec.counters.is_empty());
        if let Some(name) = taken.find(|name| !spec.counters.contains_key(*name)) {
            let name = crate::name::excerpt(name);
            let reason = format!("`takes` names `{name}`, which is not in [counters]");
            return wrong(&name, &reason).map_err(in_table);
        }
    }
    Ok(())
}

/// Checks that `[[parts]]` use only attributes that the devices of a source have.
pub(super) fn check_source(
    spec: &ClassSpec,
    source: &Source,
    known: &KnownAttributes,
) -> Result<(), BrokenRule> {
    if source.part_of.is_some() {
        let mut parts = spec.parts.iter().enumerate();
        return parts.try_for_each(|(number, parts)| {
            let served = known.check_template(&parts.found.value);
            served.map_err(|error| error.in_table("[[parts]]", number))
        });
    }
    if !spec.parts.is_empty() {
        let mut counters = spec.counters.values();
        counters.try_for_each(|counter| known.check_template(counter))?;
    }
    for (number, parts) in spec.parts.iter().enumerate() {
        let check = || {
            let mut known = known.clone();
            if let Some(each) = &parts.each {
                known.check_template(each)?;
                known.names.insert(AttributeName::each_fact());
            }
            known.check_conditions(&parts.require)?;
            let (common, of_place) = parts.attributes();
            known.add_sources(common)?;
            let mut templates = parts.common_templates();
            templates.try_for_each(|template| known.check_template(template))?;
            known.names.extend(AttributeName::of_part());
            known.add_sources(of_place)?;
            parts
                .templates()
                .try_for_each(|template| known.check_template(template))
        };
        check().map_err(|error: BrokenRule| error.in_table("[[parts]]", number))?;
    }
    Ok(())
}

/// Returns whether a name is a label (RFC 1123) and not the name of a slot.
fn is_counter(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=32).contains(&name.len())
        && name.starts_with(fits)
        && name.ends_with(fits)
        && name.chars().all(|c| fits(c) || c == '-')
        && !name.starts_with("slot-")
}
