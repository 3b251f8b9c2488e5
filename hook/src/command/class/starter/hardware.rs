//! Finds the hardware that a new class file describes, in the host's sysfs.

use std::path::{Path, PathBuf};

use device_class::device::{DeviceKind, DeviceNumber};
use device_class::discover::{self, Presence};
use device_class::host::{Entry, MAX_ATTRIBUTE_BYTES};
use device_class::{DeviceClass, HostView};

use super::Target;

/// The sysfs directory with a link for each USB device and each USB interface.
const USB_DEVICE_DIR: &str = "/sys/bus/usb/devices";

/// Returns the vendor and product ids of the USB device whose device node is `node_path`. Returns
/// `None` if the path does not have the form /dev/bus/usb/BUS/NUMBER, or if no such device exists.
pub(super) fn find_usb_ids(node_path: &str, host: &dyn HostView) -> Option<(String, String)> {
    let (bus, number) = parse_usb_node_path(node_path)?;
    let entry_names = host.list(Path::new(USB_DEVICE_DIR)).ok()?;
    let mut device_dirs = entry_names
        .iter()
        .map(|name| Path::new(USB_DEVICE_DIR).join(name));
    let has_number = |device_dir: &PathBuf| {
        let read_number = |file: &str| read_line(&device_dir.join(file), host)?.parse::<u32>().ok();
        read_number("busnum") == Some(bus) && read_number("devnum") == Some(number)
    };
    let device_dir = device_dirs.find(has_number)?;
    let [vendor, product] =
        ["idVendor", "idProduct"].map(|file| read_line(&device_dir.join(file), host));
    Some((vendor?, product?))
}

/// Parses the path of a USB device node, /dev/bus/usb/BUS/NUMBER. Returns the bus number and the
/// device number.
pub(super) fn parse_usb_node_path(node_path: &str) -> Option<(u32, u32)> {
    let (bus, number) = node_path.strip_prefix("/dev/bus/usb/")?.split_once('/')?;
    Some((bus.parse().ok()?, number.parse().ok()?))
}

fn read_line(path: &Path, host: &dyn HostView) -> Option<String> {
    let bytes = host.read(path, MAX_ATTRIBUTE_BYTES).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// A device of an installed class that is the same hardware as the target of a new class file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::command::class) struct OfferedDevice {
    pub(in crate::command::class) class: String,
    pub(in crate::command::class) device: String,
    pub(in crate::command::class) variable: String,
}

/// Returns at most one device of each class. The device has the target's device node, or a device
/// node that belongs to hardware with the target's vendor and product ids.
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
                Presence::Found(number) => Some(*number),
                Presence::Optional | Presence::Unusable(_) => None,
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

/// The hardware of the target. The device nodes of installed classes are compared with it.
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
            Target::Directory { path, nodes } => {
                let nodes = nodes.iter().map(|name| format!("{path}/{name}"));
                TargetHardware::NodeNumbers(nodes.filter_map(find_device_number).collect())
            }
            Target::BusIds {
                bus,
                vendor,
                product,
            } => {
                let (vendor_file, product_file, prefix) = match *bus {
                    "usb" => ("idVendor", "idProduct", ""),
                    _ => ("vendor", "device", "0x"),
                };
                let devices_dir = PathBuf::from(format!("/sys/bus/{bus}/devices"));
                let names = host.list(&devices_dir).unwrap_or_default();
                let directories = names.iter().map(|name| devices_dir.join(name));
                let has_ids = |directory: &PathBuf| {
                    [(vendor_file, vendor), (product_file, product)]
                        .into_iter()
                        .all(|(file, id)| {
                            let line = read_line(&directory.join(file), host);
                            line.is_some_and(|line| line == format!("{prefix}{id}"))
                        })
                };
                let directories = directories.filter(has_ids);
                TargetHardware::SysfsDirs(
                    directories
                        .filter_map(|directory| host.canonicalize(&directory).ok())
                        .collect(),
                )
            }
        }
    }

    /// Returns whether the device node with the device number `number` belongs to this hardware.
    fn includes_node(&self, number: DeviceNumber, host: &dyn HostView) -> bool {
        match self {
            TargetHardware::NodeNumbers(numbers) => numbers.contains(&number),
            TargetHardware::SysfsDirs(sysfs_dirs) => {
                let DeviceNumber { kind, major, minor } = number;
                let kind = match kind {
                    DeviceKind::Character => "char",
                    DeviceKind::Block => "block",
                };
                let link_path = format!("/sys/dev/{kind}/{major}:{minor}");
                let sysfs_path = host.canonicalize(Path::new(&link_path));
                sysfs_path.is_ok_and(|sysfs_path| {
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
