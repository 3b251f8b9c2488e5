//! Names of udev that two devices have in common.

use std::path::Path;

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;
use injection_plan::request::RequestNames;

/// The serial numbers of two adapters, and whether the second one may get the name of the first.
const CASES: [(&str, &str, &str, bool); 4] = [
    ("usb-1a86_USB_Serial-if00-port0", "", "", true),
    (
        "usb-Silicon_Labs_CP2102_0001-if00-port0",
        "0001",
        "0001",
        true,
    ),
    ("usb-Silicon_Labs_CP2102_A7-if00-port0", "A7", "0001", false),
    // The second one has a link of its own.
    ("usb-1a86_USB_Serial-if00-port0", "", "with a link", false),
];

#[test]
fn a_name_of_udev_that_another_device_may_get_is_recognized() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../device-class/classes/serial-port.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let name = "serial-port".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, &path, &text).unwrap();
    for (link, serial, other_serial, expected) in CASES {
        let mut host = format!("link /dev/serial/by-id/{link} ../../ttyUSB0\n");
        for (number, serial) in [serial, other_serial].iter().enumerate() {
            host += &format!(
                "char /dev/ttyUSB{number} 188:{number}\n\
                 link /sys/class/tty/ttyUSB{number}/device ../../../devices/1-{number}/1-{number}:1.0\n\
                 dir /sys/devices/1-{number}/1-{number}:1.0\n\
                 link /sys/bus/usb/devices/1-{number} ../../../devices/1-{number}\n"
            );
            match *serial {
                "" => {}
                "with a link" => host += "link /dev/serial/by-id/usb-other ../../ttyUSB1\n",
                serial => host += &format!("file /sys/devices/1-{number}/serial\n| {serial}\n"),
            }
        }
        let host = RecordedHost::parse(&host).unwrap();
        let inventory = discover::find_devices(&class, &host);
        let names = RequestNames::new(&class, &inventory);
        let device = &inventory.devices[0];
        assert_eq!(
            names.may_lose_udev_name(device, link),
            expected,
            "{link} {other_serial}"
        );
        assert!(!names.may_lose_udev_name(device, "ttyUSB0"));
    }
}
