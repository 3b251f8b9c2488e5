//! Looks between two scans at the few things that tell within seconds that a device no longer
//! answers: the bytes that its configuration space begins with, and the kernel's log.

use std::path::{Path, PathBuf};

use device_class::HostView;
use device_class::class::DeviceClass;
use device_class::discover::{Inventory, list_byte_checks};
use device_class::host::RealHost;

/// A file of a device with what the last scan found in it.
#[derive(Debug, Clone)]
pub(crate) struct ByteCheck {
    file: PathBuf,
    /// The bytes with which the file begins if the device does not answer.
    refused: Vec<u8>,
    answered: bool,
}

impl ByteCheck {
    /// Reads the files of all devices of a class.
    pub(crate) fn read_all(
        class: &DeviceClass,
        inventory: &Inventory,
        host: &dyn HostView,
    ) -> Vec<Self> {
        let devices = inventory.devices.iter();
        let files = devices.flat_map(|device| list_byte_checks(class, device));
        let mut checks: Vec<Self> = Vec::new();
        for (file, refused) in files {
            // Parts of one device have the same file.
            if !checks.iter().any(|check| check.file == file) {
                let answered = answers(&file, &refused, host);
                checks.push(ByteCheck {
                    file,
                    refused,
                    answered,
                });
            }
        }
        checks
    }
}

/// Whether one of the files differs from what the last scan found.
pub(crate) fn have_changed(checks: &[ByteCheck], root: &Path) -> bool {
    let Ok(host) = RealHost::open(root) else {
        return false;
    };
    let mut checks = checks.iter();
    checks.any(|check| answers(&check.file, &check.refused, &host) != check.answered)
}

fn answers(file: &Path, refused: &[u8], host: &dyn HostView) -> bool {
    let bytes = host.read(file, refused.len());
    bytes.is_ok_and(|bytes| !bytes.starts_with(refused))
}
