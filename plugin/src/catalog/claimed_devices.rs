//! Finds the devices that prepared ResourceClaims use, so that the plugin does not offer them. Pods
//! with such claims may still run after a class was moved from `boathook-dra` to this plugin.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use device_class::discover::{Device, Health};
use device_class::name::{ClassName, DeviceRef};
use host_files::rooted_path::read_own_text;
use injection_plan::claim_record::{ClaimRecord, MAX_RECORD_BYTES, parse_uid_from_file_name};

/// The devices that prepared claims use or may use.
#[derive(Debug, Default)]
pub(crate) struct ClaimedDevices {
    devices: BTreeSet<DeviceRef>,
    /// The classes for which `boathook-dra` is creating a part of a device for a claim. The id of
    /// the part is unknown until the part exists, so all devices of the class are withheld.
    classes_with_new_parts: BTreeSet<ClassName>,
    /// The reason to withhold all devices. It is set if the record of a claim is unreadable,
    /// because that claim may use any device.
    unreadable_reason: Option<String>,
}

impl ClaimedDevices {
    /// Reads all claim records in `directory`. Also returns an error message for each unreadable
    /// record.
    pub(crate) fn read(directory: &Path) -> (Self, Vec<String>) {
        let (mut claimed_devices, mut problems) = (Self::default(), Vec::new());
        let mut report_unreadable_record = |path: &Path, error: &io::Error| {
            let displayed_path = path.display();
            problems.push(format!(
                "{displayed_path}: no device is offered, since a claim may have it, and its record cannot be \
                 read ({error}); remove the file if no pod has a claim on this node"
            ));
            let reason = format!(
                "a resource claim may have it, whose record {displayed_path} is unreadable"
            );
            claimed_devices.unreadable_reason = Some(reason);
        };
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return (claimed_devices, problems);
            }
            Err(error) => {
                report_unreadable_record(directory, &error);
                return (claimed_devices, problems);
            }
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => {
                    report_unreadable_record(directory, &error);
                    break;
                }
            };
            if path
                .file_name()
                .and_then(parse_uid_from_file_name)
                .is_none()
            {
                continue;
            }
            match read_record(&path) {
                Ok(record) => {
                    let devices = record
                        .devices
                        .iter()
                        .filter(|device| !device.has_admin_access);
                    claimed_devices
                        .devices
                        .extend(devices.map(|device| device.device_ref()));
                    let new_parts = record.pending_devices.into_iter();
                    claimed_devices
                        .classes_with_new_parts
                        .extend(new_parts.map(|part| part.class));
                }
                // The record is ignored, because the claim was unprepared after the directory was
                // listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => report_unreadable_record(&path, &error),
            }
        }
        (claimed_devices, problems)
    }

    /// Returns whether a claim uses the device. The claim may have it by another class, such as one
    /// whose place this class has taken. Then the device is known only by a unique id.
    fn contains_device(&self, class: &ClassName, device: &Device) -> bool {
        let device_ref = DeviceRef::new(class, &device.id);
        self.devices.contains(&device_ref)
            || device.has_unique_id() && self.devices.iter().any(|other| other.id == device.id)
    }

    /// Marks a device as unhealthy if a claim uses it or may use it, so that the plugin does not
    /// offer it.
    pub(super) fn withhold_device(&self, class: &ClassName, device: &mut Device) {
        let reason = match &self.unreadable_reason {
            _ if self.contains_device(class, device) => {
                "a resource claim still has it by boathook-dra".to_owned()
            }
            _ if self.classes_with_new_parts.contains(class) => {
                "boathook-dra makes a part of a device of its class for a resource claim".to_owned()
            }
            Some(reason) => reason.clone(),
            None => return,
        };
        if device.health.is_healthy() {
            device.health = Health::Unhealthy { reason };
        }
    }
}

fn read_record(path: &Path) -> Result<ClaimRecord, io::Error> {
    Ok(serde_json::from_str(&read_own_text(
        path,
        MAX_RECORD_BYTES,
    )?)?)
}
