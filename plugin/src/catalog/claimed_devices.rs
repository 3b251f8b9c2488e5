//! Finds the devices that ResourceClaims use. Pods with prepared claims may still run after a
//! class was moved from `boathook-dra` to this plugin.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use device_class::discover::{Device, Health};
use device_class::name::{ClassName, DeviceRef};
use injection_plan::claim_record::{ClaimRecord, MAX_RECORD, uid_in_file_name};
use rooted_path::read_own_text;

/// The devices that prepared claims use or may use.
#[derive(Debug, Default)]
pub(crate) struct ClaimedDevices {
    devices: BTreeSet<DeviceRef>,
    /// The classes of which a part is being created for a claim. The device is known only once the
    /// part exists.
    classes: BTreeSet<ClassName>,
    /// The error of an unreadable record, which may name any device.
    unreadable: Option<String>,
}

impl ClaimedDevices {
    /// Reads the claim records of a directory. Also returns one line for each unreadable record.
    pub(crate) fn read(directory: &Path) -> (Self, Vec<String>) {
        let (mut claimed, mut problems) = (Self::default(), Vec::new());
        let mut unreadable = |path: &Path, error: &io::Error| {
            let path = path.display();
            problems.push(format!(
                "{path}: no device is offered, since a claim may have it, and its record cannot be \
                 read ({error}); remove the file if no pod has a claim on this node"
            ));
            let reason = format!("a resource claim may have it, whose record {path} is unreadable");
            claimed.unreadable = Some(reason);
        };
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (claimed, problems),
            Err(error) => {
                unreadable(directory, &error);
                return (claimed, problems);
            }
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => {
                    unreadable(directory, &error);
                    break;
                }
            };
            if path.file_name().and_then(uid_in_file_name).is_none() {
                continue;
            }
            match read_record(&path) {
                Ok(record) => {
                    let devices = record.devices.iter().filter(|one| !one.admin);
                    claimed.devices.extend(devices.map(|one| one.device_ref()));
                    let making = record.making.into_iter();
                    claimed.classes.extend(making.map(|one| one.class));
                }
                // The claim was unprepared after the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable(&path, &error),
            }
        }
        (claimed, problems)
    }

    /// Makes a device unhealthy if a claim uses it or may use it.
    pub(super) fn withhold(&self, class: &ClassName, device: &mut Device) {
        let device_ref = DeviceRef::new(class, &device.id);
        let reason = match &self.unreadable {
            _ if self.devices.contains(&device_ref) => {
                "a resource claim still has it by boathook-dra".to_owned()
            }
            _ if self.classes.contains(class) => {
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
    Ok(serde_json::from_str(&read_own_text(path, MAX_RECORD)?)?)
}
