//! Finds the major number of a driver in /proc/devices, the kernel's list of drivers.

use std::path::Path;

use super::DeviceError;
use crate::class::{self, PROC_DEVICES_PATH};
use crate::device::{DeviceKind, DeviceNumber};
use crate::host::{HostView, MAX_ATTRIBUTE_BYTES};
use crate::name::excerpt;
use crate::template::Attributes;

/// The number of different major numbers in Linux. A major number has 12 bits
/// (`include/linux/kdev_t.h`).
const MAJOR_COUNT: u32 = 1 << 12;
/// The number of different minor numbers in Linux. A minor number has 20 bits.
const MINOR_COUNT: u32 = 1 << 20;

pub(super) struct LoadedDriver {
    pub(super) name: String,
    kind: DeviceKind,
    major: u32,
}

impl LoadedDriver {
    /// Finds the driver of a node in /proc/devices. Returns `None` if the class names no driver for
    /// the node, or if the driver is not loaded.
    pub(super) fn find(
        spec: &class::Node,
        attributes: &Attributes,
        host: &dyn HostView,
    ) -> Result<Option<Self>, DeviceError> {
        let Some(driver) = &spec.driver else {
            return Ok(None);
        };
        let name = driver.fill(attributes)?;
        let kind = if spec.is_block_device {
            DeviceKind::Block
        } else {
            DeviceKind::Character
        };
        let bytes = host.read(Path::new(PROC_DEVICES_PATH), MAX_ATTRIBUTE_BYTES);
        let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let major = find_major(&name, kind, &text);
        Ok(major.map(|major| LoadedDriver { name, kind, major }))
    }

    /// Returns the device number with the driver's major number and this minor number. Fails if
    /// `minor` is not a number of at most 20 bits.
    pub(super) fn device_number(&self, minor: &str) -> Result<DeviceNumber, DeviceError> {
        let number = minor.parse().ok().filter(|minor| *minor < MINOR_COUNT);
        let number = number.map(|minor| DeviceNumber {
            kind: self.kind,
            major: self.major,
            minor,
        });
        number.ok_or_else(|| {
            let minor = excerpt(minor);
            DeviceError(format!("`{minor}` is not the minor number of a device"))
        })
    }
}

/// Finds the major number of a driver in the text of /proc/devices. The file lists character
/// devices first and then block devices. Each line is a major number and a name, such as `195 npu`.
fn find_major(driver: &str, kind: DeviceKind, text: &str) -> Option<u32> {
    let (character_devices, block_devices) =
        text.split_once("Block devices:").unwrap_or((text, ""));
    let list = match kind {
        DeviceKind::Character => character_devices,
        DeviceKind::Block => block_devices,
    };
    let mut majors = list.lines().filter_map(|line| {
        let (major, name) = line.trim().split_once(' ')?;
        (name.trim() == driver).then(|| major.parse().ok())?
    });
    majors.find(|major| *major < MAJOR_COUNT)
}
