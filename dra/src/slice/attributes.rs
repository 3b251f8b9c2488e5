//! Builds the attributes of devices in ResourceSlices, to which the selectors and constraints of
//! claims refer.

use std::collections::BTreeMap;
use std::path::Path;

use device_class::discover::{Device, PossiblePart};
use k8s_openapi::api::resource::v1::DeviceAttribute;

use crate::class_devices::{ClassDevices, DivisibleDevice, PoolEntry};

/// The maximum length of an attribute's name, in bytes (Kubernetes, resource.k8s.io/v1).
const MAX_ATTRIBUTE_NAME_BYTES: usize = 32;
/// The maximum length of an attribute's value, in bytes (Kubernetes, resource.k8s.io/v1).
const MAX_ATTRIBUTE_VALUE_BYTES: usize = 64;

/// The maximum number of a device's attributes that come from the class file. Kubernetes allows 32
/// in total, which include the driver's own attributes and the capacity for shares.
const MAX_CLASS_ATTRIBUTES: usize = 24;

/// The name of the attribute with the profile of a part, such as `half`. Whole devices do not have
/// this attribute, so that selectors can exclude parts.
pub(crate) const PART_ATTRIBUTE: &str = "part";

/// The domain of the attributes that Kubernetes defines for all drivers. A constraint can compare
/// these attributes between devices of different drivers.
const STANDARD_ATTRIBUTE_DOMAIN: &str = "resource.kubernetes.io";

/// Builds the attributes of a device by their names. A name with a domain, such as
/// `resource.kubernetes.io/numaNode`, is defined by Kubernetes; a name without one belongs to the
/// driver's domain.
pub(super) fn build_attributes(
    class: &ClassDevices,
    device: &Device,
) -> BTreeMap<String, DeviceAttribute> {
    let is_allowed = |name: &str, value: &str| {
        name.len() <= MAX_ATTRIBUTE_NAME_BYTES
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !value.is_empty()
            && value.len() <= MAX_ATTRIBUTE_VALUE_BYTES
    };
    let all_attributes = device.attributes.iter();
    let class_attributes = all_attributes
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, value)| is_allowed(name, value))
        .take(MAX_CLASS_ATTRIBUTES);
    let mut attributes: BTreeMap<String, DeviceAttribute> = class_attributes
        .map(|(name, value)| (name.to_owned(), build_class_attribute(class, name, value)))
        .collect();
    attributes.insert(
        "class".into(),
        build_string_attribute(class.class.name.as_str()),
    );
    let resource = device.resource.as_str();
    attributes.extend(
        is_allowed("resource", resource)
            .then(|| ("resource".into(), build_string_attribute(resource))),
    );
    for (name, value) in [("index", &device.index), ("group", &device.group)] {
        if let Some(value) = value.as_deref().filter(|value| is_allowed(name, value)) {
            let is_number = name == "index" && value.parse::<i64>().is_ok();
            let value = if is_number {
                build_int_attribute(value.parse().unwrap_or_default())
            } else {
                build_string_attribute(value)
            };
            attributes.insert(name.into(), value);
        }
    }
    if let Some(node) = device.numa {
        attributes.insert(
            format!("{STANDARD_ATTRIBUTE_DOMAIN}/numaNode"),
            build_int_attribute(node.into()),
        );
    }
    if let Some(bus) = device.connections.sysfs_dir() {
        let addresses = [
            ("pcieRoot", find_pcie_root(bus)),
            ("pciBusID", find_pci_address(bus)),
        ];
        let addresses = addresses
            .into_iter()
            .filter_map(|(name, address)| Some((name, address?)));
        attributes.extend(addresses.map(|(name, address)| {
            (
                format!("{STANDARD_ATTRIBUTE_DOMAIN}/{name}"),
                build_string_attribute(&address),
            )
        }));
    }
    attributes
}

/// Builds the attributes of a possible part: the attributes of its device, and the profile and
/// placement of the part. They are the same whether or not the part exists.
pub(super) fn build_part_attributes(
    class: &ClassDevices,
    parent: &DivisibleDevice,
    part: &PossiblePart,
) -> BTreeMap<String, DeviceAttribute> {
    let mut attributes = build_attributes(class, &parent.division.whole_device);
    attributes.retain(|name, _| !["resource", "index"].contains(&name.as_str()));
    attributes.insert(PART_ATTRIBUTE.into(), build_string_attribute(&part.profile));
    attributes.insert(
        "placement".into(),
        build_int_attribute(part.placement().into()),
    );
    attributes.insert("whole".into(), build_string_attribute(&parent.name));
    attributes
}

/// Builds an attribute from the class file. The value is converted to a number only if every device
/// of the class has a number for the attribute: a selector that compares numbers fails if any
/// device has a string.
fn build_class_attribute(class: &ClassDevices, name: &str, value: &str) -> DeviceAttribute {
    let has_number = |device: &Device| {
        let mut values = device.attributes.iter();
        let attribute = values.find(|(attribute_name, _)| attribute_name.as_str() == name);
        attribute.is_none_or(|(_, value)| parse_canonical_number(value).is_some())
    };
    match parse_canonical_number(value) {
        Some(value) if list_offered_devices(class).all(has_number) => build_int_attribute(value),
        _ => build_string_attribute(value),
    }
}

/// Returns the devices that ResourceSlices can list. A divisible device is included even if none of
/// its parts exists.
fn list_offered_devices(class: &ClassDevices) -> impl Iterator<Item = &Device> {
    class
        .list_pool_entries(true)
        .into_iter()
        .map(|entry| match entry {
            PoolEntry::Device(_, device) => device,
            PoolEntry::Divisible(parent) => &parent.division.whole_device,
        })
}

/// Parses a number in canonical form: `7`, but not `007`.
fn parse_canonical_number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn build_string_attribute(value: &str) -> DeviceAttribute {
    DeviceAttribute {
        string: Some(value.to_owned()),
        ..DeviceAttribute::default()
    }
}

fn build_int_attribute(value: i64) -> DeviceAttribute {
    DeviceAttribute {
        int: Some(value),
        ..DeviceAttribute::default()
    }
}

/// Returns the PCIe root complex in a sysfs device path, such as `pci0000:15`.
fn find_pcie_root(bus_path: &Path) -> Option<String> {
    let path = bus_path.strip_prefix("/sys/devices").ok()?;
    let root = path.iter().next()?.to_str()?;
    let is_root = root.strip_prefix("pci").is_some_and(|address| {
        let fields: Vec<&str> = address.split(':').collect();
        matches!(fields[..], [domain, bus] if is_hex(domain, 4) && is_hex(bus, 2))
    });
    is_root.then(|| root.to_owned())
}

/// Returns the address of the last PCI device in a sysfs device path, such as `0000:3b:00.0`.
fn find_pci_address(bus_path: &Path) -> Option<String> {
    let mut names = bus_path.iter().rev().filter_map(|name| name.to_str());
    let address = names.find(|name| {
        let fields: Vec<&str> = name.split([':', '.']).collect();
        matches!(fields[..], [domain, bus, slot, function]
            if is_hex(domain, 4) && is_hex(bus, 2) && is_hex(slot, 2) && is_hex(function, 1))
    });
    address.map(str::to_lowercase)
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_the_bus_has_kubernetes_names() {
        let of = |bus: &str| (find_pcie_root(bus.as_ref()), find_pci_address(bus.as_ref()));
        let some = |text: &str| Some(text.to_owned());
        let switch = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.A";
        assert_eq!(of(switch), (some("pci0000:15"), some("0000:17:00.a")));
        let network = "/sys/devices/pci0000:15/0000:16:00.0/net/eth0";
        assert_eq!(of(network), (some("pci0000:15"), some("0000:16:00.0")));
        let platform = "/sys/devices/platform/fdab0000.npu";
        assert_eq!(of(platform), (None, None));
    }

    #[test]
    fn what_is_not_written_as_a_number_is_text() {
        for (text, wanted) in [
            ("7", Some(7)),
            ("-1", Some(-1)),
            ("007", None),
            ("1.5", None),
        ] {
            assert_eq!(parse_canonical_number(text), wanted, "{text}");
        }
    }
}
