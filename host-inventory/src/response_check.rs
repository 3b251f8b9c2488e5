//! Polls devices between two scans for a response. A device that no longer answers, for example on
//! a lost PCI link, returns fixed bytes when its configuration space is read, so that the fault is
//! noticed within seconds.

use std::path::{Path, PathBuf};

use device_class::HostView;
use device_class::class::DeviceClass;
use device_class::discover::{Inventory, list_byte_checks};
use device_class::host::RealHost;

/// A device's file, and whether the device answered when the last scan read it.
#[derive(Debug, Clone)]
pub(crate) struct ResponseCheck {
    file: PathBuf,
    /// The bytes that the file begins with if the device does not answer.
    no_answer_bytes: Vec<u8>,
    answered: bool,
}

impl ResponseCheck {
    /// Reads the files of all devices of a class, each file once.
    pub(crate) fn read_all(
        class: &DeviceClass,
        inventory: &Inventory,
        host: &dyn HostView,
    ) -> Vec<Self> {
        let devices = inventory.devices.iter();
        let files = devices.flat_map(|device| list_byte_checks(class, device));
        let mut checks: Vec<Self> = Vec::new();
        for (file, no_answer_bytes) in files {
            // Parts of one device share its file.
            if !checks.iter().any(|check| check.file == file) {
                let answered = device_answers(&file, &no_answer_bytes, host);
                checks.push(ResponseCheck {
                    file,
                    no_answer_bytes,
                    answered,
                });
            }
        }
        checks
    }
}

/// Returns whether any device answers now and did not before, or the other way round.
pub(crate) fn has_changed_response(checks: &[ResponseCheck], root: &Path) -> bool {
    let Ok(host) = RealHost::open(root) else {
        return false;
    };
    let mut checks = checks.iter();
    checks.any(|check| device_answers(&check.file, &check.no_answer_bytes, &host) != check.answered)
}

fn device_answers(file: &Path, no_answer_bytes: &[u8], host: &dyn HostView) -> bool {
    let bytes = host.read(file, no_answer_bytes.len());
    bytes.is_ok_and(|bytes| !bytes.starts_with(no_answer_bytes))
}
