//! Describes further device nodes of a PCI or USB device, such as /dev/hidraw1 of a security key.
//! The class file finds them by their paths below the device in sysfs, because the numbers in their
//! names may change when the host boots.

use std::path::Path;

use device_class::HostView;
use device_class::host::Entry;

use super::Target;
use super::directory::replace_numbers;
use super::hardware::{find_sysfs_dir, find_usb_ids, list_device_dirs};
use super::toml_text::escape_toml;

/// Returns the item of the TOML key `nodes` for the node `node_path` of a device with the target's
/// ids. Returns `None` if the node does not belong to such a device, or if its name in /dev differs
/// from its name in sysfs.
pub(super) fn format_node(target: &Target, node_path: &str, host: &dyn HostView) -> Option<String> {
    let node_path = host.canonicalize(Path::new(node_path)).ok()?;
    // The node that programs open with libusb, such as /dev/bus/usb/001/004, has another name in
    // sysfs. So the item of the target itself is returned.
    if let Target::BusIds {
        bus: "usb",
        vendor,
        product,
    } = target
        && find_usb_ids(node_path.to_str()?, host).is_some_and(|(own_vendor, own_product)| {
            (&own_vendor, &own_product) == (vendor, product)
        })
    {
        return target.list_node_items().pop();
    }
    let Ok(Some(Entry::Device(number))) = host.entry(&node_path) else {
        return None;
    };
    let sysfs_dir = find_sysfs_dir(number, host)?;
    let device_dirs = list_device_dirs(target, host);
    let mut device_dirs = device_dirs.iter();
    let relative_path = device_dirs.find_map(|dir| sysfs_dir.strip_prefix(dir).ok())?;
    let mut path_components = relative_path.to_str()?.split('/');
    let name = path_components.next_back()?;
    if node_path.file_name()? != name {
        return None;
    }
    let mut pattern_path = match target {
        // /sys/bus/usb/devices has links of devices, such as `1-2`, and beside them the links of
        // their interfaces, such as `1-2:1.0`.
        Target::BusIds { bus: "usb", .. } => {
            path_components
                .next()
                .filter(|interface| interface.contains(':'))?;
            "/sys/bus/usb/devices/{port}:*".to_owned()
        }
        Target::BusIds { .. } => "/sys/bus/pci/devices/{bdf}".to_owned(),
        _ => return None,
    };
    for name in path_components {
        // The directory of another device has another number in its name, such as `ttyUSB1` in
        // place of `ttyUSB0`.
        let has_digit = name.contains(|c: char| c.is_ascii_digit());
        pattern_path += "/";
        pattern_path += if has_digit { "*" } else { name };
    }
    let (pattern, template) = replace_numbers(name);
    let node_dir = node_path.parent()?.to_string_lossy().into_owned();
    let [pattern_path, pattern, node_dir, template] =
        [pattern_path, pattern, node_dir, template].map(|text| escape_toml(&text));
    Some(format!(
        "{{ for_each = \"{pattern_path}/{pattern}\", path = \"{node_dir}/{template}\" }}"
    ))
}
