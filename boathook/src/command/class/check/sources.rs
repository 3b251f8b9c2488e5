//! Describes which tables `[[discover]]` of a class find no device, and why.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::discover::{self, Inventory};
use device_class::pattern::PathPattern;
use device_class::template::Attributes;
use device_class::{DeviceClass, HostView};
use hook::planner::PlannerError;

use crate::command::finding::{Finding, FindingKind, Severity};

/// Describes why the class has no device on the host.
pub(super) fn describe_missing_devices(
    class: &DeviceClass,
    inventory: &Inventory,
    host: &dyn HostView,
) -> String {
    let sources = class.spec.discover.iter();
    let patterns = sources.filter_map(|source| source.path.as_ref());
    let other_names = patterns
        .clone()
        .find_map(|pattern| describe_names_in_directory(pattern, host));
    let pattern_texts: Vec<String> = patterns.map(ToString::to_string).collect();
    let patterns = pattern_texts.join(" or ");
    let refused_candidates = &inventory.refused_candidates;
    match &inventory.missing_driver_message {
        Some(reason) => reason.clone(),
        None if refused_candidates.count == 0 && !inventory.warnings.is_empty() => {
            format!("no match of {patterns} can be used; the warnings say why")
        }
        None if refused_candidates.count == 0 => {
            let advice = other_names.unwrap_or_else(|| {
                "load the driver, or compare this with the host's paths".to_owned()
            });
            format!("nothing matches {patterns}; {advice}")
        }
        None => format!(
            "`require` refuses all that matches {patterns} ({})",
            refused_candidates.count
        ),
    }
}

/// Returns notes about the tables `[[discover]]` that find no device, if other tables of the class
/// do. A host may lack the devices of one table, but a mistake in the table has the same effect.
pub(super) fn examine_each_source(
    class: &DeviceClass,
    host: &dyn HostView,
) -> Result<Vec<Finding>, PlannerError> {
    let sources = &class.spec.discover;
    let mut findings = Vec::new();
    let mut has_devices = false;
    if sources.len() < 2 {
        return Ok(findings);
    }
    for (number, source) in (1..).zip(sources) {
        // After a table that has found devices, a scan uses only tables with `additional`.
        if has_devices && !source.is_additional {
            continue;
        }
        let mut class_with_one_source = class.clone();
        let mut source = source.clone();
        source.is_additional = false;
        class_with_one_source.spec.discover = vec![source];
        let no_capabilities = &BTreeSet::new();
        let found = discover::look_up_class(&class_with_one_source, no_capabilities.into(), host)?;
        let inventory = &found.inventory;
        if !inventory.devices.is_empty() || !inventory.hidden_ids.is_empty() {
            has_devices = true;
            continue;
        }
        let reason = describe_missing_devices(&class_with_one_source, inventory, host);
        let mut text = format!("table {number} of [[discover]] finds no device: {reason}");
        for description in &inventory.refused_candidates.descriptions {
            text.push_str("; ");
            text.push_str(description);
        }
        findings.push(Finding::new(Severity::Note, "discover", text));
    }
    Ok(findings)
}

/// Returns a warning for each id in `part_of` that no device of the class has. The parts are then
/// offered together with the device that `part_of` should name.
pub(super) fn find_parts_without_device(inventory: &Inventory) -> Vec<Finding> {
    let whole_devices = inventory.devices.iter();
    let whole_devices = whole_devices
        .chain(&inventory.partitioned_devices)
        .chain(&inventory.parts_only_devices);
    let known_ids: BTreeSet<_> = whole_devices
        .map(|device| &device.id)
        .chain(&inventory.hidden_ids)
        .collect();
    let parts = inventory.devices.iter();
    let unknown_ids: BTreeSet<_> = parts
        .filter_map(|part| part.part_of.as_ref())
        .filter(|id| !known_ids.contains(id))
        .collect();
    let to_warning = |id| {
        let text = format!(
            "`part_of` names {id}, and no device of this class has this id: write the `id` of the \
             whole device"
        );
        Finding::new(Severity::Warning, "discover", text).with_kind(FindingKind::Devices)
    };
    unknown_ids.into_iter().map(to_warning).collect()
}

/// Lists the names in the directory of `pattern`, such as `/dev/accel has accel0, accel1`. This
/// helps a user whose pattern matches none of them. Returns `None` for /dev, because its files
/// belong to all devices of the host.
fn describe_names_in_directory(pattern: &PathPattern, host: &dyn HostView) -> Option<String> {
    const MAX_NAMES: usize = 5;
    let no_attributes = Attributes::new();
    let fixed_names = pattern.components().iter();
    let fixed_names = fixed_names.map_while(|component| component.fixed_name(&no_attributes));
    let directory = Path::new("/").join(fixed_names.collect::<PathBuf>());
    let mut names = host.list(&directory).ok()?;
    if names.is_empty() || directory == Path::new("/dev") {
        return None;
    }
    names.sort_unstable();
    let other_count = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let names = names.join(", ");
    let others_note = match other_count {
        0 => String::new(),
        _ => format!(" and {other_count} others"),
    };
    Some(format!("{} has {names}{others_note}", directory.display()))
}
