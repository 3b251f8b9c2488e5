//! The attributes of devices, which selectors and constraints of claims refer to.

use std::collections::BTreeMap;
use std::path::Path;

use device_class::discover::{Device, PossiblePart};
use k8s_openapi::api::resource::v1::DeviceAttribute;

use crate::class_devices::{ClassDevices, DivisibleDevice, PoolEntry};

/// The longest name and the longest value (Kubernetes, resource.k8s.io/v1).
const MAX_NAME: usize = 32;
const MAX_VALUE: usize = 64;

/// The maximum number of a class's own attributes that a device gets. With the attributes of
/// this file and the shares there may be 32 (Kubernetes).
const MAX_OWN: usize = 24;

/// The attribute with the profile of a part.
pub(crate) const PART: &str = "part";

/// The domain of the attributes that Kubernetes defines for all drivers, so that a constraint
/// can compare the devices of several drivers.
const STANDARD: &str = "resource.kubernetes.io";

/// Builds the attributes of a device. Attributes without a domain are in the driver's domain.
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
        .take(MAX_OWN);
    let mut attributes: BTreeMap<String, DeviceAttribute> = class_attributes
        .map(|(name, value)| (name.to_owned(), own_value(class, name, value)))
        .collect();
    attributes.insert("class".into(), text(class.class.name.as_str()));
    let resource = device.resource.as_str();
    attributes
        .extend(is_allowed("resource", resource).then(|| ("resource".into(), text(resource))));
    for (name, value) in [("index", &device.index), ("group", &device.group)] {
        if let Some(value) = value.as_deref().filter(|value| is_allowed(name, value)) {
            let is_number = name == "index" && value.parse::<i64>().is_ok();
            let value = match is_number {
                true => number(value.parse().unwrap_or_default()),
                false => text(value),
            };
            attributes.insert(name.into(), value);
        }
    }
    if let Some(node) = device.numa {
        attributes.insert(format!("{STANDARD}/numaNode"), number(node.into()));
    }
    if let Some(bus) = device.connections.bus() {
        let addresses = [("pcieRoot", pcie_root(bus)), ("pciBusID", pci_address(bus))];
        let addresses = addresses
            .into_iter()
            .filter_map(|(name, address)| Some((name, address?)));
        attributes.extend(
            addresses.map(|(name, address)| (format!("{STANDARD}/{name}"), text(&address))),
        );
    }
    attributes
}

/// Returns the attributes of a part, whether or not it exists: those of its device, and the
/// profile of the part.
pub(super) fn build_part_attributes(
    class: &ClassDevices,
    parent: &DivisibleDevice,
    part: &PossiblePart,
) -> BTreeMap<String, DeviceAttribute> {
    let mut attributes = build_attributes(class, &parent.divisible.whole);
    attributes.retain(|name, _| !["resource", "index"].contains(&name.as_str()));
    attributes.insert(PART.into(), text(&part.profile));
    attributes.insert("placement".into(), number(part.placement().into()));
    attributes.insert("whole".into(), text(&parent.name));
    attributes
}

/// Returns the value as a number if this attribute is a number for each device of the class. A
/// selector that compares numbers fails for all devices if one device has a text.
fn own_value(class: &ClassDevices, name: &str, value: &str) -> DeviceAttribute {
    let is_number = |device: &Device| {
        let mut values = device.attributes.iter();
        let value = values.find(|(own_name, _)| own_name.as_str() == name);
        value.is_none_or(|(_, value)| canonical(value).is_some())
    };
    match canonical(value) {
        Some(value) if offered(class).all(is_number) => number(value),
        _ => text(value),
    }
}

/// Returns the devices whose attributes slices have. They do not change when parts are made.
fn offered(class: &ClassDevices) -> impl Iterator<Item = &Device> {
    class
        .list_entries(true)
        .into_iter()
        .map(|offered| match offered {
            PoolEntry::Device(_, device) => device,
            PoolEntry::Divisible(whole) => &whole.divisible.whole,
        })
}

/// Parses a number in its usual form. `007` is a text.
fn canonical(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn text(value: &str) -> DeviceAttribute {
    DeviceAttribute {
        string: Some(value.to_owned()),
        ..DeviceAttribute::default()
    }
}

fn number(value: i64) -> DeviceAttribute {
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

/// Returns the address of the last PCI device in a path of sysfs, such as `0000:3b:00.0`.
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
            assert_eq!(canonical(text), wanted, "{text}");
        }
    }
}
