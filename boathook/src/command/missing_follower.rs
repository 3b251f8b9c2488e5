//! Finds containers that wait for devices although `boathook follow` does not run. These containers
//! never get the devices.

use device_class::config::Config;
use device_class::name::excerpt;
use hook::attachment::{self, AttachmentRecord};
use injection_plan::follower::{FOLLOWER_NAME, START_COMMANDS, is_running};

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
    let text = format!("{FOLLOWER_NAME} does not run, so nothing gives the device when it comes");
    let finding = Finding::new(Severity::Warning, "follow", text).with_fix(START_COMMANDS);
    is_follower_missing.then_some(finding)
}

/// Returns a finding if containers wait for devices and `boathook follow` does not run.
pub(super) fn check_follower(config: &Config) -> Option<Finding> {
    let records = attachment::read_records(&config.host_root);
    let waiting_records = records
        .iter()
        .filter(|record| is_waiting_for_devices(record));
    let container_ids: Vec<String> = waiting_records.map(|record| excerpt(&record.id)).collect();
    let finding = (!container_ids.is_empty()).then(|| find_missing_follower(config))??;
    let shown_ids = &container_ids[..container_ids.len().min(MAX_SHOWN_CONTAINERS)];
    let more_note = match container_ids.len() - shown_ids.len() {
        0 => String::new(),
        more_note => format!(" and {more_note} more"),
    };
    let text = format!(
        "{}{more_note}: waiting, but {}",
        shown_ids.join(", "),
        finding.text
    );
    Some(Finding { text, ..finding })
}

/// Returns whether the container waits for a device: it requested one by name, or it requested all
/// devices of a class and has none of them.
fn is_waiting_for_devices(record: &AttachmentRecord) -> bool {
    record.awaited_requests.iter().any(|awaited_request| {
        let mut devices = record.devices.iter();
        !awaited_request.is_for_all()
            || !devices.any(|device| device.class == awaited_request.class)
    })
}
