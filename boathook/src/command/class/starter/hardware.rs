//! Finds the hardware for which `boathook class new` writes a class file, in the host's sysfs.

use std::path::{Path, PathBuf};

use device_class::device::{DeviceKind, DeviceNumber};
use device_class::discover::{self, PathLookup};
use device_class::host::{Entry, MAX_ATTRIBUTE_BYTES};
use device_class::{DeviceClass, HostView};

use super::Target;

/// The sysfs directory with a link for each USB device and each USB interface.
const USB_DEVICE_DIR: &str = "/sys/bus/usb/devices";

/// Returns the vendor and product ids, such as `054c` and `06c1`, of the USB device whose device
/// node is `node_path`. Returns `None` if the path does not have the form /dev/bus/usb/BUS/NUMBER,
/// or if no such device exists.
pub(super) fn find_usb_ids(node_path: &str, host: &dyn HostView) -> Option<(String, String)> {
    let device_dir = find_usb_device_dir(node_path, host)?;
    let [vendor, product] =
        ["idVendor", "idProduct"].map(|file| read_line(&device_dir.join(file), host));
    Some((vendor?, product?))
}

/// Returns the sysfs directory of the USB device with the device node `node_path`, such as
/// /sys/bus/usb/devices/1-2 for /dev/bus/usb/001/004.
fn find_usb_device_dir(node_path: &str, host: &dyn HostView) -> Option<PathBuf> {
    let (bus, number) = parse_usb_node_path(node_path)?;
    let entry_names = host.list(Path::new(USB_DEVICE_DIR)).ok()?;
    let mut device_dirs = entry_names
        .iter()
        .map(|name| Path::new(USB_DEVICE_DIR).join(name));
    let has_number = |device_dir: &PathBuf| {
        let read_number = |file: &str| read_line(&device_dir.join(file), host)?.parse::<u32>().ok();
        read_number("busnum") == Some(bus) && read_number("devnum") == Some(number)
    };
    device_dirs.find(has_number)
}

/// Returns the argument of `boathook class new` for a device node: its path, such as `/dev/npu0`,
/// or the ids of its USB device, such as `usb:054c:06c1`. Returns `None` for a USB hub, which no
/// container needs.
pub(in crate::command) fn find_class_new_argument(
    node: &Path,
    host: &dyn HostView,
) -> Option<String> {
    let path = node.to_str()?;
    let Some(directory) = find_usb_device_dir(path, host) else {
        return Some(path.to_owned());
    };
    let (vendor, product) = find_usb_ids(path, host)?;
    // USB hubs have the device class 09 (usb.org, "USB Class Codes"). The kernel's root hubs have
    // the vendor id of the Linux Foundation (drivers/usb/core/hcd.c).
    let device_class = read_line(&directory.join("bDeviceClass"), host);
    let is_hub = device_class.as_deref() == Some("09") || vendor == "1d6b";
    (!is_hub).then(|| format!("usb:{vendor}:{product}"))
}

/// Parses the path of a USB device node. Returns the bus number and the device number, such as 1
/// and 4 for /dev/bus/usb/001/004.
pub(super) fn parse_usb_node_path(node_path: &str) -> Option<(u32, u32)> {
    let (bus, number) = node_path.strip_prefix("/dev/bus/usb/")?.split_once('/')?;
    Some((bus.parse().ok()?, number.parse().ok()?))
}

fn read_line(path: &Path, host: &dyn HostView) -> Option<String> {
    let bytes = host.read(path, MAX_ATTRIBUTE_BYTES).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// Returns the sysfs directory of the device that has the device number `number`. The path contains
/// no symbolic links, unlike /sys/dev/char/189:3, which is a link to such a directory.
pub(super) fn find_sysfs_dir(number: DeviceNumber, host: &dyn HostView) -> Option<PathBuf> {
    let DeviceNumber { kind, major, minor } = number;
    let kind = match kind {
        DeviceKind::Character => "char",
        DeviceKind::Block => "block",
    };
    let link_path = format!("/sys/dev/{kind}/{major}:{minor}");
    host.canonicalize(Path::new(&link_path)).ok()
}

/// Returns the vendor and product ids of the USB device to which a node such as /dev/ttyUSB0
/// belongs. The node's sysfs directory is below the directory that contains the ids.
pub(in crate::command::class) fn find_usb_ids_of_node(
    node_path: &Path,
    host: &dyn HostView,
) -> Option<(String, String)> {
    let Ok(Some(Entry::Device(number))) = host.entry(node_path) else {
        return None;
    };
    let sysfs_dir = find_sysfs_dir(number, host)?;
    sysfs_dir.ancestors().find_map(|dir| {
        let [vendor, product] =
            ["idVendor", "idProduct"].map(|file| read_line(&dir.join(file), host));
        Some((vendor?, product?))
    })
}

/// Returns the sysfs directories, without symbolic links in their paths, of the devices with the
/// ids of `target`. The result is empty for a target without ids.
pub(super) fn list_device_dirs(target: &Target, host: &dyn HostView) -> Vec<PathBuf> {
    let Target::BusIds {
        bus,
        vendor,
        product,
    } = target
    else {
        return Vec::new();
    };
    let (vendor_file, product_file, prefix) = match *bus {
        "usb" => ("idVendor", "idProduct", ""),
        _ => ("vendor", "device", "0x"),
    };
    let bus_dir = PathBuf::from(format!("/sys/bus/{bus}/devices"));
    let entry_names = host.list(&bus_dir).unwrap_or_default();
    let device_dirs = entry_names.iter().map(|name| bus_dir.join(name));
    let has_ids = |device_dir: &PathBuf| {
        [(vendor_file, vendor), (product_file, product)]
            .into_iter()
            .all(|(file, id)| {
                let line = read_line(&device_dir.join(file), host);
                line.is_some_and(|line| line == format!("{prefix}{id}"))
            })
    };
    let device_dirs = device_dirs.filter(has_ids);
    device_dirs
        .filter_map(|device_dir| host.canonicalize(&device_dir).ok())
        .collect()
}

/// A device of an installed class that is the same hardware as the target of a new class file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::command::class) struct OfferedDevice {
    pub(in crate::command::class) class: String,
    pub(in crate::command::class) device: String,
    pub(in crate::command::class) variable: String,
}

/// Finds the devices of installed classes that are the same hardware as `target`, at most one for
/// each class. Such a device has the device node of the target. If the target is a pair of ids, the
/// device's hardware has these ids.
pub(in crate::command::class) fn find_offered_devices(
    target: &Target,
    host: &dyn HostView,
    classes: impl IntoIterator<Item = DeviceClass>,
) -> Vec<OfferedDevice> {
    let hardware = TargetHardware::from_target(target, host);
    let mut offered_devices = Vec::new();
    for class in classes {
        let devices = discover::find_devices(&class, host).devices;
        let matching_device = devices.iter().find(|device| {
            let numbers = device.nodes.iter().filter_map(|node| match &node.number {
                PathLookup::Found(number) => Some(*number),
                PathLookup::OptionalAbsent | PathLookup::Unusable(_) => None,
            });
            numbers
                .into_iter()
                .any(|number| hardware.includes_node(number, host))
        });
        offered_devices.extend(matching_device.map(|device| OfferedDevice {
            class: class.name.to_string(),
            device: device.id.to_string(),
            variable: class.spec.request.env.to_string(),
        }));
    }
    offered_devices
}

/// The hardware of a target. The device nodes of installed classes are compared with it.
enum TargetHardware {
    NodeNumbers(Vec<DeviceNumber>),
    /// The sysfs directories of the devices, without symbolic links in their paths.
    SysfsDirs(Vec<PathBuf>),
}

impl TargetHardware {
    fn from_target(target: &Target, host: &dyn HostView) -> Self {
        let find_device_number = |path: String| match host.entry(Path::new(&path)) {
            Ok(Some(Entry::Device(number))) => Some(number),
            _ => None,
        };
        match target {
            Target::Node {
                stem,
                number: index,
                suffix,
            } => {
                let node_number = find_device_number(format!("{stem}{index}{suffix}"));
                TargetHardware::NodeNumbers(node_number.into_iter().collect())
            }
            Target::Link { path, .. } => {
                TargetHardware::NodeNumbers(find_device_number(path.clone()).into_iter().collect())
            }
            Target::Directory { path, nodes } => {
                let nodes = nodes.iter().map(|name| format!("{path}/{name}"));
                TargetHardware::NodeNumbers(nodes.filter_map(find_device_number).collect())
            }
            Target::BusIds { .. } => TargetHardware::SysfsDirs(list_device_dirs(target, host)),
        }
    }

    fn includes_node(&self, number: DeviceNumber, host: &dyn HostView) -> bool {
        match self {
            TargetHardware::NodeNumbers(numbers) => numbers.contains(&number),
            TargetHardware::SysfsDirs(sysfs_dirs) => {
                find_sysfs_dir(number, host).is_some_and(|sysfs_path| {
                    sysfs_dirs
                        .iter()
                        .any(|sysfs_dir| sysfs_path.starts_with(sysfs_dir))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use device_class::host::RecordedHost;

    use super::*;

    const HOST: &str = "
link /sys/bus/usb/devices/1-2 ../../../devices/usb1/1-2
file /sys/devices/usb1/1-2/idVendor
| 10c4
file /sys/devices/usb1/1-2/idProduct
| ea60
file /sys/devices/usb1/1-2/busnum
| 1
file /sys/devices/usb1/1-2/devnum
| 7
link /sys/class/tty/ttyUSB0 ../../devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0
link /sys/devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0/device ../../../ttyUSB0
link /sys/dev/char/188:0 ../../devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0
char /dev/ttyUSB0 188:0
link /dev/zigbee ttyUSB0
char /dev/bus/usb/001/007 189:6
char /dev/null 1:3
";

    #[test]
    fn the_class_that_has_the_hardware_is_found() {
        let host = RecordedHost::parse(HOST).unwrap();
        for (target, expected) in [
            ("usb:10c4:ea60", "serial-1-2:1.0"),
            ("/dev/bus/usb/001/007", "serial-1-2:1.0"),
            ("/dev/ttyUSB0", "serial-1-2:1.0"),
            ("/dev/zigbee", "serial-1-2:1.0"),
            ("usb:10c4:ea61", ""),
            ("/dev/null", ""),
        ] {
            let text = include_str!("../../../../../device-class/classes/serial-port.toml");
            let name = "serial-port".to_owned().try_into().unwrap();
            let class = DeviceClass::parse(name, "serial-port.toml".as_ref(), text).unwrap();
            let resolved = Target::parse(target).unwrap().resolve(&host).unwrap();
            let offered = find_offered_devices(&resolved, &host, [class]).into_iter();
            let found: Vec<String> = offered.map(|offered| offered.device).collect();
            assert_eq!(found.join(" "), expected, "{target}");
        }
    }
}
