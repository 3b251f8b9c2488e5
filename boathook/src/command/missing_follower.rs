//! Finds containers that wait for devices although `boathook follow` does not run. These containers
//! never get the devices.

use device_class::config::Config;
use hook::attachment;
use injection_plan::follower::{FOLLOWER_NAME, START_COMMANDS, is_running};

use super::containers;
use super::finding::{Finding, Severity};
use super::log;

/// The maximum number of containers that one finding of `boathook check` names.
const MAX_SHOWN_CONTAINERS: usize = 4;

/// Returns a finding if `boathook follow` does not run. Returns `None` if it runs, or if this user
/// may not read its lock file.
pub(super) fn find_missing_follower(config: &Config) -> Option<Finding> {
    let directories = log::list_log_directories(&config.host_root);
    let is_follower_missing = directories
        .iter()
        .all(|directory| is_running(directory).is_ok_and(|is_running| !is_running));
    let text = format!(
        "{FOLLOWER_NAME} does not run, so no container gets a device that is plugged in later, or \
         again"
    );
    let finding = Finding::new(Severity::Warning, "follow", text).with_fix(START_COMMANDS);
    is_follower_missing.then_some(finding)
}

/// Returns a finding if containers wait for devices and `boathook follow` does not run.
pub(super) fn check_follower(config: &Config) -> Option<Finding> {
    let mut records = attachment::read_records(&config.host_root);
    records.retain(|record| !crate::live::has_access_to_all_devices(record, config));
    if records.is_empty() {
        return None;
    }
    let finding = find_missing_follower(config)?;
    let waiting_containers = crate::live::find_unfulfilled_requests(&records, config)
        .into_iter()
        .filter(|(_, requests)| !requests.is_empty());
    let names_by_id = containers::read_container_names_by_id(&config.host_root);
    let labels: Vec<String> = waiting_containers
        .map(|(id, _)| {
            let name = names_by_id.get(&id).map(String::as_str);
            containers::format_label(&id, name)
        })
        .collect();
    let shown_labels = &labels[..labels.len().min(MAX_SHOWN_CONTAINERS)];
    let more_note = match labels.len() - shown_labels.len() {
        0 => String::new(),
        more_count => format!(" and {more_count} more"),
    };
    let text = format!(
        "{}{more_note}: waiting, but {}",
        shown_labels.join(", "),
        finding.text
    );
    (!labels.is_empty()).then_some(Finding { text, ..finding })
}
