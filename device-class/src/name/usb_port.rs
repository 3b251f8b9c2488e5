//! Recognizes names of devices that are USB ports.

/// Returns whether a name is a USB port: the number of the bus, and the numbers of the ports on the
/// way to the device, such as `1-2.4` (Documentation/ABI/stable/sysfs-bus-usb, "X-Y.Z").
pub fn is_usb_port(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let bus_and_ports = name.split_once('-').filter(|(bus, _)| is_number(bus));
    // The kernel numbers USB buses from 1.
    bus_and_ports.is_some_and(|(bus, ports)| bus != "0" && ports.split('.').all(is_number))
}
