//! Finds the requests of containers that are not fulfilled. The container does not have the
//! requested device now, and gets it when the device arrives. This module changes no container.

use std::collections::BTreeMap;

use device_class::config::Config;
use hook::attachment::{AttachmentRecord, AwaitedRequest, ContainerDevice};
use hook::oci::Bundle;
use injection_plan::plan::StepOwner;

use crate::live::reconcile::{HostSnapshot, copy_with_present_devices};

/// Returns the unfulfilled requests of containers, by the containers' ids. A request for all
/// devices of a class is unfulfilled if the container has none of them.
pub(crate) fn find_unfulfilled_requests(
    records: &[AttachmentRecord],
    config: &Config,
) -> BTreeMap<String, Vec<AwaitedRequest>> {
    let snapshot = HostSnapshot::take(records, config);
    let requests = records.iter().map(|record| {
        // `boathook follow` may not be running, so the record may lack a device that has arrived.
        let record = copy_with_present_devices(record, &snapshot);
        let requests = list_requests(&record).into_iter();
        let has_access_to_all_devices = has_access_to_all_devices(&record, config);
        let is_unfulfilled = |request: &AwaitedRequest| {
            let mut devices = record.devices.iter();
            let has_device = devices.any(|device| {
                let is_requested = if request.requests_all_devices() {
                    device.class == request.class
                } else {
                    request.has_device(device)
                };
                is_requested
                    && if has_access_to_all_devices {
                        snapshot.has_device(device) != Some(false)
                    } else {
                        is_usable(device, &record, &snapshot)
                    }
            });
            !has_device
        };
        (record.id.clone(), requests.filter(is_unfulfilled).collect())
    });
    requests.collect()
}

/// Reports whether a container has the host's whole /dev and may access every device. Such a
/// container can use a device that arrives without the help of `boathook follow`.
pub(crate) fn has_access_to_all_devices(record: &AttachmentRecord, config: &Config) -> bool {
    Bundle::read(&record.bundle_dir)
        .is_ok_and(|bundle| bundle.has_access_to_all_devices(&config.host_root))
}

/// Returns the requests of a record that wait for a device or have received one. An older version
/// of Boathook removed a request from the record when its device arrived, so such requests are
/// added again.
fn list_requests(record: &AttachmentRecord) -> Vec<AwaitedRequest> {
    let mut requests = record.awaited_requests.clone();
    for device in record
        .devices
        .iter()
        .filter(|device| device.has_arrived_late)
    {
        let is_of_device = |request: &AwaitedRequest| {
            request.has_device(device)
                || request.requests_all_devices() && request.class == device.class
        };
        if !requests.iter().any(is_of_device) {
            requests.push(AwaitedRequest::from_device(device));
        }
    }
    requests
}

/// Reports whether a container can use a recorded device now: the host has the device, and the
/// container may access it by one of its current numbers.
fn is_usable(device: &ContainerDevice, record: &AttachmentRecord, snapshot: &HostSnapshot) -> bool {
    if snapshot.has_device(device) == Some(false) || !record.has_rule_or_file_of(device) {
        return false;
    }
    let owner = StepOwner::Device(device.device_ref());
    let rules = record.rules.iter();
    let rules: Vec<_> = rules.filter(|rule| rule.owners.contains(&owner)).collect();
    let is_current = |number| rules.iter().any(|rule| rule.rule.number == number);
    // A container of a rootless engine has no rules. If the class cannot be used, the current
    // numbers are unknown. In both cases, the device counts as usable.
    rules.is_empty()
        || snapshot
            .list_numbers(device)
            .is_none_or(|numbers| numbers.into_iter().any(is_current))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An older version removed the request when the device arrived.
    #[test]
    fn a_late_device_of_an_older_record_is_awaited() {
        let device = |id: &str, other: &str| {
            format!(
                r#"{{"class":"sticks","device":"{id}","asked":"","forced":false,"name":"{id}x"{other}}}"#
            )
        };
        let (late, first) = (device("a", r#","late":true"#), device("b", ""));
        let all = r#"{"class":"sticks","awaited":"all"}"#;
        for (waiting, expected) in [("", &["ax"][..]), (all, &["all"])] {
            let record = format!(
                r#"{{"id":"c","pid":7,"started":9,"bundle":"/b","devices":[{late},{first}],"waiting":[{waiting}],"rules":[],"made":[]}}"#
            );
            let record: AttachmentRecord = serde_json::from_str(&record).unwrap();
            let requests = list_requests(&record).into_iter();
            let texts = requests.map(|request| request.awaited_device.to_request_text());
            assert_eq!(texts.collect::<Vec<_>>(), expected);
        }
    }
}
