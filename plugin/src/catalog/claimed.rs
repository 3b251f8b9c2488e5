//! The devices that resource claims have: `boathook-dra` served their class before, and pods
//! that it prepared them for may still run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use device_class::discover::{Device, Health};
use device_class::name::{ClassName, DeviceId};
use serde::Deserialize;

/// The largest record of a claim that is read, in bytes, as the driver's.
const MAX: u64 = 256 * 1024;

/// Classes, and ids of their devices.
#[derive(Debug, Default)]
pub(crate) struct Claimed(BTreeSet<(ClassName, DeviceId)>);

/// The fields of a record that say which devices a claim has.
#[derive(Deserialize)]
struct Record {
    devices: Vec<Prepared>,
}

#[derive(Deserialize)]
struct Prepared {
    class: ClassName,
    id: DeviceId,
    /// The claim only looks at it, and others may have it.
    #[serde(default)]
    admin: bool,
}

impl Claimed {
    /// Reads the records. Returns those that cannot be read as lines, too.
    pub(crate) fn read(directory: &Path) -> (Self, Vec<String>) {
        let (mut claimed, mut problems) = (BTreeSet::new(), Vec::new());
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match record(&path) {
                Ok(record) => claimed.extend(
                    (record.devices.into_iter().filter(|one| !one.admin))
                        .map(|one| (one.class, one.id)),
                ),
                // A claim that has ended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => problems.push(format!(
                    "{}: its devices may be offered twice: {error}",
                    path.display()
                )),
            }
        }
        (Self(claimed), problems)
    }

    /// Makes a device of a class unhealthy if a claim has it.
    pub(super) fn withhold(&self, class: &ClassName, device: &mut Device) {
        let is_of = |(of, id): &(ClassName, DeviceId)| of == class && *id == device.id;
        if device.health.is_healthy() && self.0.iter().any(is_of) {
            let reason = "a resource claim still has it by boathook-dra".to_owned();
            device.health = Health::Unhealthy { reason };
        }
    }
}

fn record(path: &Path) -> Result<Record, io::Error> {
    let mut text = String::new();
    File::open(path)?.take(MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}
