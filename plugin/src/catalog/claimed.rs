//! Reads which devices are in use by resource claims. If `boathook-dra` served a class before,
//! pods with prepared claims may still run.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use device_class::discover::{Device, Health};
use device_class::name::{ClassName, DeviceId};
use rooted_path::read_own_text;
use serde::Deserialize;

/// The maximum size in bytes of a claim record, which is the same as in the DRA driver.
const MAX: u64 = 4 << 20;

/// The devices that are, or may be, in use by claims.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    devices: BTreeSet<(ClassName, DeviceId)>,
    /// The classes of which a part of a device is being made for a claim. Which device that
    /// is, is known only when the part exists.
    classes: BTreeSet<ClassName>,
    /// The error of a record that cannot be read. Such a record may have any device.
    unreadable: Option<String>,
}

/// The fields of a claim record that tell which devices the claim has.
#[derive(Deserialize)]
struct Record {
    devices: Vec<Prepared>,
    #[serde(default)]
    making: Vec<Making>,
}

#[derive(Deserialize)]
struct Making {
    class: ClassName,
}

#[derive(Deserialize)]
struct Prepared {
    class: ClassName,
    id: DeviceId,
    /// Whether the claim has admin access (`adminAccess`). Then other claims and pods may have
    /// the device as well.
    #[serde(default)]
    admin: bool,
}

impl Claimed {
    /// Reads the claim records in a directory. Also returns one line for each record that
    /// cannot be read.
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
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match record(&path) {
                Ok(record) => {
                    let devices = record.devices.into_iter().filter(|one| !one.admin);
                    let devices = devices.map(|one| (one.class, one.id));
                    claimed.devices.extend(devices);
                    let making = record.making.into_iter();
                    claimed.classes.extend(making.map(|one| one.class));
                }
                // The claim has ended since the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable(&path, &error),
            }
        }
        (claimed, problems)
    }

    /// Makes a device of a class unhealthy if a claim has it, or may have it.
    pub(super) fn withhold(&self, class: &ClassName, device: &mut Device) {
        let is_of = |(of, id): &(ClassName, DeviceId)| of == class && *id == device.id;
        let reason = match &self.unreadable {
            _ if self.devices.iter().any(is_of) => {
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

fn record(path: &Path) -> Result<Record, io::Error> {
    Ok(serde_json::from_str(&read_own_text(path, MAX)?)?)
}
