//! Finds the parts of a driver that a host lacks. Without them devices are absent or of less use,
//! although no check of a device's health fails.

use super::attributes::Files;
use super::edits::{self, EditSelection};
use super::{Inventory, attributes, search, source};
use crate::class::{DeviceClass, UnclaimedHardware};
use crate::facts::Facts;
use crate::host::HostView;
use crate::template::Attributes;

/// The largest number of unclaimed devices of a class that are reported.
const MAX_UNCLAIMED: usize = 64;

/// Reports what a host lacks of a class whose driver is loaded, one line each: hardware that
/// the driver has not taken, and nodes that a container with these capabilities needs.
pub fn find_lacks<'a>(
    class: &'a DeviceClass,
    selection: impl Into<EditSelection<'a>>,
    inventory: &Inventory,
    host: &dyn HostView,
) -> Vec<String> {
    if inventory.no_driver.is_some() {
        return Vec::new();
    }
    let mut reports = find_unclaimed(class, host);
    if !inventory.devices.is_empty() {
        let attributes = &inventory.host_attributes;
        reports.extend(find_missing_nodes(class, selection, attributes, host));
    }
    reports
}

/// Reports hardware of a class that the driver has not taken, one line each.
pub fn find_unclaimed(class: &DeviceClass, host: &dyn HostView) -> Vec<String> {
    let tables = class.spec.unclaimed.iter();
    let reports = tables.flat_map(|table| find_unclaimed_by_table(table, host));
    reports.take(MAX_UNCLAIMED).collect()
}

fn find_unclaimed_by_table(table: &UnclaimedHardware, host: &dyn HostView) -> Vec<String> {
    let matches = search::matches(&table.path, &Attributes::new(), host, super::MAX_DEVICES);
    let mut reports = Vec::new();
    for matched in matches.unwrap_or_default() {
        let files = &mut Files::new(host);
        let (base, facts) = (Some(matched.path.as_path()), Facts::default());
        let Ok(attributes) =
            attributes::read(&table.attributes, base, matched.attributes, &facts, files)
        else {
            continue;
        };
        let is_met = |condition| source::holds(condition, &attributes, host);
        if table.require.iter().all(is_met) {
            reports.extend(table.report.fill(&attributes));
        }
    }
    reports
}

/// Reports the optional nodes that a container with these capabilities needs
/// (`needed_for`) and the host lacks, one line each.
pub fn find_missing_nodes<'a>(
    class: &'a DeviceClass,
    selection: impl Into<EditSelection<'a>>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Vec<String> {
    let nodes = edits::find_nodes(class, selection.into(), attributes, host);
    let lacks = nodes.into_iter().filter_map(|node| node.lack);
    lacks.map(|lack| lack.text).collect()
}
