//! Polls devices between two scans, so that the loss of a device is noticed within seconds. If a
//! device no longer answers, for example after the loss of its PCI link, a read of its
//! configuration space returns fixed bytes.

use std::path::{Path, PathBuf};

use device_class::HostView;
use device_class::class::DeviceClass;
use device_class::discover::{Inventory, list_response_checks};
use device_class::host::RealHost;

/// A check whether a device still answers, with the result of the last scan.
#[derive(Debug, Clone)]
pub(crate) struct ResponseCheck {
    /// The file of the device that is read, such as its PCI configuration space in /sys.
    path: PathBuf,
    /// The bytes at the beginning of the file. If the file begins with them, the device does not
    /// answer.
    no_answer_bytes: Vec<u8>,
    has_answered: bool,
}

impl ResponseCheck {
    /// Creates a check for each file that shows whether one of the devices answers. Reads each file
    /// once, so that later reads can be compared with the result.
    pub(crate) fn from_devices(
        class: &DeviceClass,
        inventory: &Inventory,
        host: &dyn HostView,
    ) -> Vec<Self> {
        let devices = inventory.devices.iter();
        let files = devices.flat_map(|device| list_response_checks(class, device));
        let mut checks: Vec<Self> = Vec::new();
        for (path, no_answer_bytes) in files {
            // The partitions of one device have the same file. This file is checked only once.
            if !checks.iter().any(|check| check.path == path) {
                let has_answered = is_answering(&path, &no_answer_bytes, host);
                checks.push(ResponseCheck {
                    path,
                    no_answer_bytes,
                    has_answered,
                });
            }
        }
        checks
    }
}

/// Returns whether a device has stopped or begun to answer since the last scan.
pub(crate) fn has_changed_response(checks: &[ResponseCheck], host_root: &Path) -> bool {
    let Ok(host) = RealHost::open(host_root) else {
        return false;
    };
    let mut checks = checks.iter();
    checks
        .any(|check| is_answering(&check.path, &check.no_answer_bytes, &host) != check.has_answered)
}

fn is_answering(path: &Path, no_answer_bytes: &[u8], host: &dyn HostView) -> bool {
    let bytes = host.read(path, no_answer_bytes.len());
    bytes.is_ok_and(|bytes| !bytes.starts_with(no_answer_bytes))
}
