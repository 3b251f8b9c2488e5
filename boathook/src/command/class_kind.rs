//! Sorts classes by how often users want their devices, to choose the examples in messages.

use device_class::DeviceClass;
use hook::planner::DOMAIN_WITHOUT_VENDOR;

/// The kind of a class. Examples prefer the first variants, because users want devices of these
/// kinds more often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClassKind {
    /// The class has devices of a vendor, such as GPUs, and is offered to pods by default.
    OfferedVendor,
    /// The devices can be plugged in while containers run, such as cameras.
    HotPluggable,
    /// The class has devices of a vendor, but is not offered to pods by default.
    UnofferedVendor,
    /// The devices belong to no particular vendor, and most hosts have them, such as sound cards.
    Common,
    /// The class has one device node, which the kernel creates at most once, such as /dev/fuse.
    SingleNode,
    /// The devices are virtual, without hardware. The class file says how many of them a host has.
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
