//! Keeps driver properties that an earlier run of a driver's program reported and the last run did
//! not report. For example, a device that does not answer may be missing in the output of the
//! program.

use std::collections::BTreeSet;

use super::{Device, scan_with_properties};
use crate::class::{AttributeOrigin, AttributeSource, DeviceClass, LinkPeers, TextSource};
use crate::driver_properties::DriverProperties;
use crate::host::HostView;
use crate::template::Template;

/// Adds to `new_properties` the earlier properties of those devices that the host still has.
/// `has_failure` is true if one of the programs failed. Otherwise the earlier properties of a
/// device are kept only if the programs reported no property of the device at all.
///
/// `is_replaced` takes a key, and returns whether a program that may report this key succeeded. It
/// is called only for properties of the driver or of possible partitions, not of one device.
///
/// If one property of a device has changed, no earlier property of the device is kept. The program
/// may identify devices by a number, and this number may now belong to another device.
pub fn keep_earlier_properties(
    new_properties: &mut DriverProperties,
    earlier_properties: DriverProperties,
    class: &DeviceClass,
    host: &dyn HostView,
    has_failure: bool,
    is_replaced: impl Fn(&str) -> bool,
) {
    let (attribute_keys, link_keys) = list_device_keys(class);
    let inventory = scan_with_properties(class, host, Some(&earlier_properties));
    let devices = inventory
        .devices
        .iter()
        .chain(&inventory.partitioned_devices);
    let devices: Vec<&Device> = devices.chain(&inventory.parts_only_devices).collect();
    let mut kept_keys = BTreeSet::new();
    for device in &devices {
        let fill_key = |key: &&Template| key.fill(&device.attributes).ok();
        let keys: BTreeSet<String> = attribute_keys.iter().filter_map(fill_key).collect();
        let is_new = |key: &String| new_properties.first_value(key).is_some();
        let has_changed = |key: &String| {
            let earlier_value = earlier_properties.first_value(key);
            is_new(key)
                && earlier_value.is_some()
                && earlier_value != new_properties.first_value(key)
        };
        let should_keep_properties = if has_failure {
            !keys.iter().any(has_changed)
        } else {
            !keys.iter().any(is_new)
        };
        if should_keep_properties {
            kept_keys.extend(keys);
            kept_keys.extend(link_keys.iter().filter_map(fill_key));
        }
    }
    // A property that describes no single device, but the driver or possible partitions, is kept
    // only if a program failed and no successful program reports the property.
    let device_keys = attribute_keys.iter().chain(&link_keys);
    let is_device_key = |key: &str| {
        device_keys
            .clone()
            .any(|template| template.matches_filled_text(key))
    };
    let should_keep = |key: &str| {
        kept_keys.contains(key) || has_failure && !is_device_key(key) && !is_replaced(key)
    };
    if !devices.is_empty() {
        new_properties.add_earlier(earlier_properties, should_keep);
    }
}

/// Returns the templates for keys of properties that describe one device. The first list has those
/// of the device's attributes. The second list has those of its connections, which also depend on
/// the device at the other end.
fn list_device_keys(class: &DeviceClass) -> (Vec<&Template>, Vec<&Template>) {
    let spec = &class.spec;
    let attributes = spec.discover.iter().flat_map(|source| &source.attributes);
    let properties = attributes.filter_map(|AttributeSource { origin, .. }| match origin {
        AttributeOrigin::Text {
            text: TextSource::DriverProperty(key),
            ..
        } => Some(key),
        _ => None,
    });
    let links = spec.device.links.iter();
    let links = links.filter_map(|links| match &links.peers {
        LinkPeers::DriverProperty(key) => Some(key),
        LinkPeers::Files { .. } => None,
    });
    (properties.collect(), links.collect())
}
