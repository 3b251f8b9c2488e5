//! Chooses the device that commands name in examples: one that a person probably wants.

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use injection_plan::request::RequestNames;

use super::devices::ListedDevice;
use crate::planner::{self, DOMAIN_WITHOUT_VENDOR};

/// The kind of a class. Users want devices of the first kinds more often than of the later ones, so
/// examples prefer the first kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClassKind {
    /// A vendor's device, such as a GPU, that is offered to pods by default.
    OfferedVendor,
    /// A device that can be plugged in while containers run, such as a camera.
    HotPluggable,
    /// A vendor's device that is not offered to pods by default.
    UnofferedVendor,
    /// A device of no particular vendor that most hosts have, such as a sound card or an I2C bus.
    Common,
    /// A device node of the kernel that a host has at most once, such as /dev/fuse.
    SingleNode,
    /// A virtual device without hardware. The class file says how many such devices a host has.
    Virtual,
}

impl ClassKind {
    pub(super) fn from_class(class: &DeviceClass) -> Self {
        let spec = &class.spec;
        let (resource_name, is_virtual) = (
            spec.resource.to_string(),
            spec.discover
                .iter()
                .all(|source| source.virtual_device_count.is_some()),
        );
        let has_distinct_devices = spec.discover.iter().any(|source| {
            let path = source.path.as_ref();
            path.is_none_or(|path| path.captures().next().is_some())
        });
        let has_vendor = !resource_name.starts_with(DOMAIN_WITHOUT_VENDOR);
        match () {
            () if is_virtual => ClassKind::Virtual,
            () if spec.is_followed => ClassKind::HotPluggable,
            () if !has_distinct_devices => ClassKind::SingleNode,
            () if has_vendor && spec.is_enabled => ClassKind::OfferedVendor,
            () if has_vendor => ClassKind::UnofferedVendor,
            () => ClassKind::Common,
        }
    }
}

/// Returns a healthy device of this host as an example. Classes with a low `class_rank` are tried
/// first, and classes with the same rank in the order of their kinds.
pub(super) fn find_example<K: Ord>(
    classes: &[DeviceClass],
    class_rank: impl Fn(&DeviceClass) -> K,
    config: &Config,
) -> Option<ListedDevice> {
    let host = planner::open_host(config).ok()?;
    let mut classes: Vec<&DeviceClass> = classes.iter().collect();
    classes.sort_by_key(|class| (class_rank(class), ClassKind::from_class(class)));
    classes.into_iter().find_map(|class| {
        let inventory = discover::find_devices(class, &host);
        let mut devices = inventory.devices.iter();
        let device = devices.find(|device| device.health.is_healthy())?;
        let names = RequestNames::new(class, &inventory);
        Some(ListedDevice::new(class, device, &names))
    })
}
