//! Finds the parts of a driver that a host lacks. Without them devices are absent or of less use,
//! although no check of a device's health fails.

use super::attributes::Files;
use super::edits::{self, EditSelection};
use super::{Inventory, Presence, attributes, search, source};
use crate::class::{DeviceClass, Unclaimed};
use crate::facts::Facts;
use crate::host::HostView;
use crate::template::Attributes;

/// The largest number of unclaimed devices of a class that are reported.
const MAX_UNCLAIMED: usize = 64;

/// Reports what a host lacks of a class whose driver is loaded, one line each: hardware that
/// the driver has not taken, and nodes that a container with these capabilities needs.
pub fn find_lacks<'a>(
    class: &'a DeviceClass,
    wanted: impl Into<EditSelection<'a>>,
    inventory: &Inventory,
    host: &dyn HostView,
) -> Vec<String> {
    if inventory.no_driver.is_some() {
        return Vec::new();
    }
    let mut lacks = find_unclaimed(class, host);
    if !inventory.devices.is_empty() {
        let attributes = &inventory.host_attributes;
        lacks.extend(find_missing_nodes(class, wanted, attributes, host));
    }
    lacks
}

/// Reports hardware of a class that the driver has not taken, one line each.
pub fn find_unclaimed(class: &DeviceClass, host: &dyn HostView) -> Vec<String> {
    let tables = class.spec.unclaimed.iter();
    let found = tables.flat_map(|table| find_by_table(table, host));
    found.take(MAX_UNCLAIMED).collect()
}

fn find_by_table(table: &Unclaimed, host: &dyn HostView) -> Vec<String> {
    let known = Attributes::new();
    let found = search::matches(&table.path, &known, host, super::MAX_DEVICES);
    let mut reports = Vec::new();
    for found in found.unwrap_or_default() {
        let files = &mut Files::new(host);
        let (base, facts) = (Some(found.path.as_path()), Facts::default());
        let read = attributes::read(&table.attributes, base, found.attributes, &facts, files);
        let Ok(known) = read else {
            continue;
        };
        let holds = |condition| source::holds(condition, &known, host);
        if table.require.iter().all(holds) {
            reports.extend(table.report.fill(&known));
        }
    }
    reports
}

/// Reports the optional nodes that a container with these capabilities needs
/// (`needed_for`) and the host lacks, one line each.
pub fn find_missing_nodes<'a>(
    class: &'a DeviceClass,
    wanted: impl Into<EditSelection<'a>>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Vec<String> {
    let wanted = wanted.into();
    let mut missing = Vec::new();
    for (spec, found) in edits::find_nodes(class, wanted, attributes, host) {
        let Some(needed_for) = &spec.needed_for else {
            continue;
        };
        for node in found
            .iter()
            .filter(|node| node.number == Presence::Optional)
        {
            let path = node.host.display();
            let advice = spec.advice.as_ref();
            let advice = advice.map(|text| format!("; {}", attributes::advised(text, attributes)));
            missing.push(format!(
                "{path} does not exist, and {needed_for} fails without it{}",
                advice.unwrap_or_default()
            ));
        }
    }
    missing
}
