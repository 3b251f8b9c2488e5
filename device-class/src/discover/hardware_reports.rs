//! Reports hardware whose driver is not bound to it, and optional device nodes that are missing on
//! a host. In both cases containers cannot use all of the hardware, although no health check fails.

use super::attributes::FileReader;
use super::edits::{self, EditSelection};
use super::{Inventory, attributes, search, source};
use crate::class::{DeviceClass, UnclaimedHardware};
use crate::driver_properties::DriverProperties;
use crate::host::HostView;
use crate::template::Attributes;

/// The maximum number of reports for one class about hardware without its driver. Further reports
/// are left out.
const MAX_UNCLAIMED_REPORTS: usize = 64;

/// A line about hardware of the host that containers cannot use, or cannot use in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareReport {
    pub text: String,
    /// True if the administrator has probably configured the host so on purpose. Then the report is
    /// no warning.
    pub is_intended: bool,
}

/// Returns one report for each piece of hardware whose driver is not bound to it. If the host has a
/// device of the class, also returns one report for each missing optional node that a container
/// with this selection needs. Without a device the driver creates no nodes, so none is missing.
///
/// `is_class_named` is true if the user asked about this class by its name. Otherwise a disabled
/// class reports no hardware without its driver. Such a class extends an enabled one, which has the
/// same `[[unclaimed]]` tables and reports the same hardware.
pub fn describe_unusable_hardware<'a>(
    class: &'a DeviceClass,
    is_class_named: bool,
    selection: impl Into<EditSelection<'a>>,
    inventory: &Inventory,
    host: &dyn HostView,
) -> Vec<HardwareReport> {
    let mut reports = Vec::new();
    if class.spec.is_enabled || is_class_named {
        reports.extend(describe_unclaimed_hardware(class, host));
    }
    if !inventory.devices.is_empty() {
        let attributes = &inventory.host_attributes;
        let texts = describe_missing_nodes(class, selection, attributes, host);
        reports.extend(texts.into_iter().map(|text| HardwareReport {
            text,
            is_intended: false,
        }));
    }
    reports
}

/// Returns one report for each piece of hardware whose driver is not bound to it. The
/// `[[unclaimed]]` tables of the class describe how such hardware is found.
pub fn describe_unclaimed_hardware(
    class: &DeviceClass,
    host: &dyn HostView,
) -> Vec<HardwareReport> {
    let tables = class.spec.unclaimed_hardware.iter();
    let reports = tables.flat_map(|table| describe_matching_hardware(table, host));
    reports.take(MAX_UNCLAIMED_REPORTS).collect()
}

fn describe_matching_hardware(
    table: &UnclaimedHardware,
    host: &dyn HostView,
) -> Vec<HardwareReport> {
    let matches = search::find_matches(&table.path, &Attributes::new(), host, super::MAX_DEVICES);
    let mut reports = Vec::new();
    for path_match in matches.unwrap_or_default() {
        let reader = &mut FileReader::new(host);
        let (base_path, properties) =
            (Some(path_match.path.as_path()), DriverProperties::default());
        let Ok(attributes) = attributes::read_attributes(
            &table.attributes,
            base_path,
            path_match.attributes,
            &properties,
            reader,
        ) else {
            continue;
        };
        let is_condition_met = |condition| source::is_condition_met(condition, &attributes, host);
        if table.require.iter().all(is_condition_met) {
            let text = table.report.fill(&attributes);
            reports.extend(text.map(|text| HardwareReport {
                text,
                is_intended: table.is_intended,
            }));
        }
    }
    reports
}

/// Returns one line for each optional device node that is missing on the host, if the class file
/// says with `needed_for` why a container with this selection needs it.
pub fn describe_missing_nodes<'a>(
    class: &'a DeviceClass,
    selection: impl Into<EditSelection<'a>>,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Vec<String> {
    let nodes = edits::find_nodes_without_errors(class, selection.into(), attributes, host);
    let absences = nodes.into_iter().filter_map(|node| node.absence);
    absences.map(|absence| absence.message).collect()
}
