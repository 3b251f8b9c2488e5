//! Builds the device attributes that selectors and constraints of claims refer to.

use std::collections::BTreeMap;
use std::path::Path;

use device_class::discover::{Device, PossiblePart};
use k8s_openapi::api::resource::v1::DeviceAttribute;

use crate::class_devices::{ClassDevices, DivisibleDevice, PoolEntry};

/// The maximum length of an attribute's name and of its value (Kubernetes, resource.k8s.io/v1).
const MAX_NAME: usize = 32;
const MAX_VALUE: usize = 64;

/// The maximum number of attributes that a device gets from its class file. Kubernetes allows 32,
/// including the attributes of this file and the shares.
const MAX_CLASS_ATTRIBUTES: usize = 24;

/// The name of the attribute with the profile of a part.
pub(crate) const PART: &str = "part";

/// The domain of the attributes that Kubernetes defines for all drivers. A constraint can compare
/// them across drivers.
const STANDARD_DOMAIN: &str = "resource.kubernetes.io";

/// Builds the attributes of a device. An attribute without a domain belongs to the driver's
/// domain.
pub(super) fn build_attributes(
    class: &ClassDevices,
    device: &Device,
) -> BTreeMap<String, DeviceAttribute> {
    let is_allowed = |name: &str, value: &str| {
        name.len() <= MAX_NAME
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !value.is_empty()
            && value.len() <= MAX_VALUE
    };
    let class_attributes = device.attributes.iter();
    let class_attributes = class_attributes.map(|(name, value)| (name.as_str(), value.as_str()));
    let class_attributes = class_attributes
        .filter(|(name, value)| is_allowed(name, value))
        .take(MAX_CLASS_ATTRIBUTES);
    let mut attributes: BTreeMap<String, DeviceAttribute> = class_attributes
        .map(|(name, value)| (name.to_owned(), class_attribute(class, name, value)))
        .collect();
    attributes.insert("class".into(), string_attribute(class.class.name.as_str()));
    let resource = device.resource.as_str();
    attributes.extend(
        is_allowed("resource", resource).then(|| ("resource".into(), string_attribute(resource))),
    );
    for (name, value) in [("index", &device.index), ("group", &device.group)] {
        if let Some(value) = value.as_deref().filter(|value| is_allowed(name, value)) {
            let is_number = name == "index" && value.parse::<i64>().is_ok();
            let value = if is_number {
                int_attribute(value.parse().unwrap_or_default())
            } else {
                string_attribute(value)
            };
            attributes.insert(name.into(), value);
        }
    }
    if let Some(node) = device.numa {
        attributes.insert(
            format!("{STANDARD_DOMAIN}/numaNode"),
            int_attribute(node.into()),
        );
    }
    if let Some(bus) = device.connections.bus() {
        let addresses = [("pcieRoot", pcie_root(bus)), ("pciBusID", pci_address(bus))];
        let addresses = addresses
            .into_iter()
            .filter_map(|(name, address)| Some((name, address?)));
        attributes.extend(addresses.map(|(name, address)| {
            (
                format!("{STANDARD_DOMAIN}/{name}"),
                string_attribute(&address),
            )
        }));
    }
    attributes
}

/// Builds the attributes of a part, whether or not it exists: the attributes of its device and the
/// profile.
pub(super) fn build_part_attributes(
    class: &ClassDevices,
    parent: &DivisibleDevice,
    part: &PossiblePart,
) -> BTreeMap<String, DeviceAttribute> {
    let mut attributes = build_attributes(class, &parent.divisible.whole);
    attributes.retain(|name, _| !["resource", "index"].contains(&name.as_str()));
    attributes.insert(PART.into(), string_attribute(&part.profile));
    attributes.insert("placement".into(), int_attribute(part.placement().into()));
    attributes.insert("whole".into(), string_attribute(&parent.name));
    attributes
}

/// Converts an attribute of the class file. The value becomes a number only if it is a number for
/// every device of the class, because a selector that compares numbers fails for all devices if
/// one has a text.
fn class_attribute(class: &ClassDevices, name: &str, value: &str) -> DeviceAttribute {
    let is_number = |device: &Device| {
        let mut values = device.attributes.iter();
        let value = values.find(|(own_name, _)| own_name.as_str() == name);
        value.is_none_or(|(_, value)| parse_canonical_number(value).is_some())
    };
    match parse_canonical_number(value) {
        Some(value) if list_offered_devices(class).all(is_number) => int_attribute(value),
        _ => string_attribute(value),
    }
}

/// Returns the devices that slices describe, independent of which parts exist.
fn list_offered_devices(class: &ClassDevices) -> impl Iterator<Item = &Device> {
    class
        .list_entries(true)
        .into_iter()
        .map(|offered| match offered {
            PoolEntry::Device(_, device) => device,
            PoolEntry::Divisible(whole) => &whole.divisible.whole,
        })
}

/// Parses a number in canonical features, which `007` is not.
fn parse_canonical_number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn string_attribute(value: &str) -> DeviceAttribute {
    DeviceAttribute {
        string: Some(value.to_owned()),
        ..DeviceAttribute::default()
    }
}

fn int_attribute(value: i64) -> DeviceAttribute {
    DeviceAttribute {
        int: Some(value),
        ..DeviceAttribute::default()
    }
}

/// Returns the PCIe root complex of a device, such as `pci0000:15`.
fn pcie_root(bus: &Path) -> Option<String> {
    let path = bus.strip_prefix("/sys/devices").ok()?;
    let root = path.iter().next()?.to_str()?;
    let is_root = root.strip_prefix("pci").is_some_and(|address| {
        let parts: Vec<&str> = address.split(':').collect();
        matches!(parts[..], [domain, bus] if is_hex(domain, 4) && is_hex(bus, 2))
    });
    is_root.then(|| root.to_owned())
}

/// Returns the address of the last PCI device in a sysfs path, such as `0000:3b:00.0`.
fn pci_address(bus: &Path) -> Option<String> {
    let mut names = bus.iter().rev().filter_map(|name| name.to_str());
    let address = names.find(|name| {
        let parts: Vec<&str> = name.split([':', '.']).collect();
        matches!(parts[..], [domain, bus, slot, function]
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
        let of = |bus: &str| (pcie_root(bus.as_ref()), pci_address(bus.as_ref()));
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
