//! Finds CDI specifications with device nodes that the host no longer has. Engines refuse a
//! container that requests such a device, before any hook is called.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::collect_by_insertion;
use injection_plan::cdi::SpecificationOwner;
use serde_json::Value;

use crate::command::finding::{Finding, Severity};

/// The maximum number of devices that one finding names. Further devices are only counted.
const MAX_SHOWN_DEVICES: usize = 4;

/// Returns a warning if device nodes of a specification do not exist on the host. Files of the
/// device plugin are not examined, because the plugin writes them again when a device comes or
/// goes.
pub(super) fn report_missing_nodes(
    host_root: &Path,
    specification_path: &Path,
    specification: &Value,
) -> Option<Finding> {
    let file_name = specification_path.file_name()?.to_str()?;
    if !SpecificationOwner::User.owns_file(file_name) {
        return None;
    }
    let devices = specification["devices"].as_array()?;
    let missing: BTreeSet<(&str, &str)> =
        collect_by_insertion(devices.iter().filter_map(|device| {
            let nodes = device["containerEdits"]["deviceNodes"].as_array()?;
            // With a device number an engine creates the node itself.
            let mut host_paths = nodes
                .iter()
                .filter(|node| node["major"].is_null())
                .filter_map(|node| node["hostPath"].as_str().or_else(|| node["path"].as_str()));
            let missing_path =
                host_paths.find(|path| !host_root.join(path.trim_start_matches('/')).exists())?;
            Some((device["name"].as_str()?, missing_path))
        }));
    let shown_devices: Vec<String> = missing
        .iter()
        .take(MAX_SHOWN_DEVICES)
        .map(|(device, path)| format!("`{device}` ({path})"))
        .collect();
    if shown_devices.is_empty() {
        return None;
    }
    let omitted_note = match missing.len().saturating_sub(MAX_SHOWN_DEVICES) {
        0 => String::new(),
        omitted_count => format!(" and {omitted_count} more"),
    };
    let text = format!(
        "{} lists devices whose device nodes do not exist on this host: {}{omitted_note}; an \
         engine refuses a container that requests such a device",
        specification_path.display(),
        shown_devices.join(", ")
    );
    let finding = Finding::new(Severity::Warning, "CDI names", text);
    Some(finding.with_fix(
        "connect the device, or run `boathook cdi generate` to update the file; \
         `boathook-init install --cdi` enables a service that updates it when devices change",
    ))
}
