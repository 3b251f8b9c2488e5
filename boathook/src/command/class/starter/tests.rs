//! Tests of first class files: for nodes, links, directories and ids.

use super::*;
use device_class::class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;
use device_class::name::ClassName;

fn parse(text: &str) -> (String, DeviceClass) {
    let name = ClassName::try_from("new".to_owned()).unwrap();
    let class = DeviceClass::parse(name, Path::new("new.toml"), text);
    (
        text.to_owned(),
        class.unwrap_or_else(|error| panic!("{error}\n{text}")),
    )
}

#[test]
fn a_first_class_file_finds_the_device() {
    let host = "char /dev/mychip0 240:0\nchar /dev/mychip10 240:10\n\
        char /dev/net/tun 10:200\nchar /dev/card3_ctl 1:4\nchar /dev/v4l2loop 1:5\n\
        char /dev/iio:device0 245:0\nchar /dev/iio:device1 245:1\n\
        char /dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0 188:0\n\
        char /dev/a+b#c@d=e 1:7\n\
        char /dev/serial/by-id/usb-ITead_Sonoff_Zigbee_3.0_USB_Dongle_Plus-if00-port0 1:6\nchar /dev/vend/chip3 1:3\n\
        file /sys/bus/pci/devices/0000:01:00.0/vendor\n| 0x10ee\n\
        file /sys/bus/pci/devices/0000:01:00.0/device\n| 0x5000\n\
        file /sys/bus/usb/devices/1-2/idVendor\n| 054c\n\
        file /sys/bus/usb/devices/1-2/idProduct\n| 06c1\n\
        file /sys/bus/usb/devices/1-2/busnum\n| 1\n\
        file /sys/bus/usb/devices/1-2/devnum\n| 7\n\
        char /dev/bus/usb/001/007 189:6\n\
        char /dev/snd/controlC0 116:1\nchar /dev/snd/seq 116:2\ndir /dev/snd/by-path\n\
        char /dev/input/event3 13:67\nlink /dev/input/by-id/usb-Scanner-event-kbd ../event3\n\
        char /dev/my\\x20chip/a1 1:9\nchar /dev/my\\x20chip/ctl 1:10\n";
    let host = RecordedHost::parse(host).unwrap();
    for (text, name, ids) in [
        ("/dev/mychip0", "mychip", "mychip-0 mychip-10"),
        ("/dev/net/tun", "net-tun", "net-tun"),
        ("/dev/card3_ctl", "card", "card-3"),
        ("/dev/v4l2loop", "v4l2loop", "v4l2loop"),
        (
            "/dev/serial/by-id/usb-ITead_Sonoff_Zigbee_3.0_USB_Dongle_Plus-if00-port0",
            "serial-by-id-usb-itead-sonoff-z-e6008bf6",
            "serial-by-id-usb-itead-sonoff-z-e6008bf6",
        ),
        ("/dev/vend/chip3", "vend-chip", "vend-chip-3"),
        (
            "/dev/iio:device0",
            "iio-device",
            "iio-device-0 iio-device-1",
        ),
        (
            "/dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0",
            "serial-by-path-pci-0000-00-14-0-f94eecc6",
            "serial-by-path-pci-0000-00-14-0-f94eecc6",
        ),
        ("/dev/a+b#c@d=e", "a-b-c-d-e", "a-b-c-d-e"),
        ("pci:10EE:5000", "pci-10ee-5000", "0000:01:00.0"),
        ("usb:054c:06c1", "usb-054c-06c1", "usb-1-2"),
        ("/dev/bus/usb/001/007", "usb-054c-06c1", "usb-1-2"),
        ("/dev/snd", "snd", "snd"),
        (
            "/dev/input/by-id/usb-Scanner-event-kbd",
            "input-by-id-usb-scanner-event-kbd",
            "input-by-id-usb-scanner-event-kbd",
        ),
        ("/dev/my\\x20chip", "my-x20chip", "my-x20chip"),
    ] {
        let target = Target::parse(text).unwrap().resolve(&host).unwrap();
        let file = target.format_class_file(&[], &InstalledNames::default(), &host);
        let (file, class) = parse(&file.unwrap());
        assert!(file.contains(&format!("as {name}.toml")), "{text}: {file}");
        let found = discover::find_devices(&class, &host).devices;
        assert!(found.iter().all(|device| device.health.is_healthy()));
        let found: Vec<_> = found.iter().map(|device| device.id.as_str()).collect();
        assert_eq!(found.join(" "), ids, "{text}");
    }
}

#[test]
fn a_usb_device_is_named_by_its_port_and_its_serial_number() {
    const PORTS: &str = "\
        file /sys/bus/usb/devices/@/idVendor\n| 0bda\nfile /sys/bus/usb/devices/@/idProduct\n| 2838\n\
        file /sys/bus/usb/devices/@/busnum\n| 1\nfile /sys/bus/usb/devices/@/devnum\n| #\n\
        char /dev/bus/usb/001/00# 189:#\n";
    let port = |port: &str, number: &str| PORTS.replace('@', port).replace('#', number);
    // Two sticks as sold have one serial number, and a third has none.
    let text = format!(
        "{}{}{}file /sys/bus/usb/devices/1-1/serial\n| 00000001\n\
         file /sys/bus/usb/devices/1-2/serial\n| 00000001\n",
        port("1-1", "3"),
        port("1-2", "4"),
        port("1-3", "5")
    );
    let host = RecordedHost::parse(&text).unwrap();
    let target = Target::parse("usb:0bda:2838").unwrap();
    let file = target.format_class_file(&[], &InstalledNames::default(), &host);
    let file = file.unwrap();
    // The keys in comments are right too.
    let uncommented = file
        .replace("# follow", "follow")
        .replace("# unmask", "unmask")
        .replace("# [[edits]]\n# masks", "[[edits]]\nmasks");
    assert_eq!(uncommented.matches("\n[[edits]]\nmasks").count(), 1);
    for file in [file, uncommented] {
        let found = discover::find_devices(&parse(&file).1, &host);
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        let devices = found.devices.iter();
        let ids: Vec<&str> = devices.map(|device| device.id.as_str()).collect();
        assert_eq!(ids, ["usb-1-1", "usb-1-2", "usb-1-3"]);
        let aliases = found.devices.iter().map(|device| device.aliases.join(" "));
        let aliases: Vec<String> = aliases.collect();
        assert_eq!(aliases, ["00000001 1-1", "00000001 1-2", "1-3"]);
    }
}

/// As media servers on boards have several nodes and directories.
#[test]
fn a_further_path_may_be_a_directory() {
    let host = "char /dev/chip0 240:0\nchar /dev/heap/system 250:0\nchar /dev/heap/cma 250:1\n";
    let host = RecordedHost::parse(host).unwrap();
    let target = Target::parse("/dev/chip0").unwrap().resolve(&host).unwrap();
    let file = target.format_class_file(&["/dev/heap".into()], &InstalledNames::default(), &host);
    let (_, class) = parse(&file.unwrap());
    let found = discover::look_up_class(&class, (&std::collections::BTreeSet::new()).into(), &host)
        .unwrap();
    let nodes = found
        .edits
        .nodes
        .iter()
        .map(|node| node.host_path.display().to_string());
    assert_eq!(
        nodes.collect::<Vec<_>>(),
        ["/dev/heap/cma", "/dev/heap/system"]
    );
}

#[test]
fn a_path_of_no_device_is_refused() {
    let host = RecordedHost::parse("dir /dev/empty\ndir /dev/empty/by-path\n").unwrap();
    for (path, says) in [
        (
            "/dev/bus/usb/001/009",
            "no USB device of this host has the node",
        ),
        ("/dev/empty", "the directory /dev/empty has no device nodes"),
    ] {
        let error = Target::parse(path).unwrap().resolve(&host).unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

/// Each line has the given nodes, the expected nodes of each device, and the expected nodes
/// of the class.
const NODES: &str = "
acme0 acme0_dma1 acme_ctl | acme{index} acme{index}_dma1 | acme_ctl
acme0_ctl acme0_dma0 acme0_dma1 | acme{index}_ctl acme{index}_dma0 acme{index}_dma1
acme0_dma0 acme0_dma1 acme0_ctl acme | acme{index}_dma0 acme{index}_dma1 acme{index}_ctl | acme
# Those of other devices.
acme0_ctl acme0_dma0 acme1_ctl acme1_dma0 acme01_ctl | acme{index}_ctl acme{index}_dma0
";

#[test]
fn a_device_has_several_nodes() {
    for row in NODES.trim().lines().filter(|row| !row.starts_with('#')) {
        let [nodes, lists @ ..] = &row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let mut paths = nodes.split(' ').map(|name| format!("/dev/{name}"));
        let target = Target::parse(&paths.next().unwrap()).unwrap();
        let sibling_paths = paths.collect::<Vec<_>>();
        let host = RecordedHost::parse("").unwrap();
        let text = target.format_class_file(&sibling_paths, &InstalledNames::default(), &host);
        let (text, _) = parse(&text.unwrap());
        let written = text
            .lines()
            .filter_map(|line| line.strip_prefix("nodes = "));
        let written: Vec<String> = written
            .map(|list| list.replace(['[', ']', '"', ','], "").replace("/dev/", ""))
            .collect();
        assert_eq!(written, lists, "{nodes}: {text}");
    }
    let target = Target::parse("/dev/acme0").unwrap();
    let host = RecordedHost::parse("").unwrap();
    let sibling_paths = ["pci:10ee:5000".to_owned()];
    let error = target.format_class_file(&sibling_paths, &InstalledNames::default(), &host);
    assert!(error.is_err());
}

#[test]
fn other_texts_are_refused() {
    for text in [
        "",
        "mychip0",
        "/dev",
        "/dev/",
        "/dev/../etc/x",
        "/dev/a\"b",
        "/dev/a{b}",
        "/dev/a*",
        "/dev/\u{a9}",
        "10ee:5000",
        "pci:1:2",
        "usb:054c",
        "/dev/7",
    ] {
        assert!(Target::parse(text).is_err(), "{text}");
    }
}

/// A key with two nodes, a modem, a card on PCI, and links of udev.
const LINKS: &str = "\
link /sys/bus/usb/devices/1-2 ../../../devices/usb1/1-2
file /sys/devices/usb1/1-2/idVendor
| 1050
file /sys/devices/usb1/1-2/idProduct
| 0407
file /sys/devices/usb1/1-2/busnum
| 1
file /sys/devices/usb1/1-2/devnum
| 7
link /sys/bus/usb/devices/1-2:1.0 ../../../devices/usb1/1-2/1-2:1.0
link /sys/bus/usb/devices/1-2:1.1 ../../../devices/usb1/1-2/1-2:1.1
link /sys/dev/char/240:1 ../../devices/usb1/1-2/1-2:1.0/0003:1050:0407.0001/hidraw/hidraw1
dir /sys/devices/usb1/1-2/1-2:1.0/0003:1050:0407.0001/hidraw/hidraw1
link /sys/dev/char/240:2 ../../devices/usb1/1-2/1-2:1.1/0003:1050:0407.0002/hidraw/hidraw2
dir /sys/devices/usb1/1-2/1-2:1.1/0003:1050:0407.0002/hidraw/hidraw2
link /sys/dev/char/240:0 ../../devices/virtual/hidraw/hidraw0
dir /sys/devices/virtual/hidraw/hidraw0
file /sys/bus/pci/devices/0000:01:00.0/vendor
| 0x10ee
file /sys/bus/pci/devices/0000:01:00.0/device
| 0x5000
link /sys/dev/char/241:3 ../../bus/pci/devices/0000:01:00.0/acme/acme3
dir /sys/bus/pci/devices/0000:01:00.0/acme/acme3
char /dev/bus/usb/001/007 189:6
char /dev/hidraw0 240:0
char /dev/hidraw1 240:1
char /dev/hidraw2 240:2
char /dev/acme3 241:3
block /dev/sr0 11:0
link /dev/key bus/usb/001/007
link /dev/cdrom sr0
link /dev/card0 acme3
link /dev/input/by-id/usb-\u{a9}Maker_Pad\\x20360-event ../../hidraw2
";

/// The node that a link names has another number after the next start, and programs look for it
/// where the kernel has it.
#[test]
fn a_link_is_the_device_to_which_it_leads() {
    let host = RecordedHost::parse(LINKS).unwrap();
    let by_id = "/dev/input/by-id/usb-\u{a9}Maker_Pad\\x20360-event";
    for (link, id, node, links) in [
        ("/dev/key", "usb-1-2", "/dev/bus/usb/001/007", ""),
        ("/dev/cdrom", "cdrom", "/dev/sr0", "/dev/cdrom"),
        ("/dev/card0", "card0", "/dev/acme3", "/dev/card0"),
        (
            by_id,
            "input-by-id-usb-maker-pad-x20360-event",
            "/dev/hidraw2",
            by_id,
        ),
    ] {
        let target = Target::parse(link).unwrap().resolve(&host).unwrap();
        let file = target.format_class_file(&[], &InstalledNames::default(), &host);
        let found = discover::find_devices(&parse(&file.unwrap()).1, &host);
        let [device] = found.devices.as_slice() else {
            panic!("{link}: {found:?}");
        };
        let [found_node] = device.nodes.as_slice() else {
            panic!("{link}: {device:?}");
        };
        let found_links: Vec<&str> = found_node
            .links
            .iter()
            .map(|path| path.to_str().unwrap())
            .collect();
        assert_eq!(
            (
                device.id.as_str(),
                found_node.container_path.to_str().unwrap()
            ),
            (id, node)
        );
        assert_eq!(found_links.join(" "), links, "{link}");
    }
}

/// A row has the target, further nodes, and the nodes of the device in a container.
const DEVICES_WITH_NODES: &str = "
usb:1050:0407 | /dev/hidraw1 /dev/hidraw2 | /dev/bus/usb/001/007 /dev/hidraw1 /dev/hidraw2
/dev/bus/usb/001/007 | /dev/hidraw2 | /dev/bus/usb/001/007 /dev/hidraw1 /dev/hidraw2
pci:10ee:5000 | /dev/acme3 | /dev/acme3
# The device's own node on the bus, by its path and by a link to it.
usb:1050:0407 | /dev/bus/usb/001/007 | /dev/bus/usb/001/007
usb:1050:0407 | /dev/key /dev/hidraw1 | /dev/bus/usb/001/007 /dev/hidraw1 /dev/hidraw2
# The node is of another device: every container has it.
usb:1050:0407 | /dev/hidraw0 | /dev/bus/usb/001/007
";

#[test]
fn further_nodes_of_a_device_are_found_by_its_place() {
    let host = RecordedHost::parse(LINKS).unwrap();
    let rows = DEVICES_WITH_NODES.trim().lines();
    for row in rows.filter(|row| !row.starts_with('#')) {
        let [target, sibling_paths, nodes] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let sibling_paths: Vec<String> = sibling_paths.split(' ').map(str::to_owned).collect();
        let target = Target::parse(target).unwrap().resolve(&host).unwrap();
        let file = target.format_class_file(&sibling_paths, &InstalledNames::default(), &host);
        let file = file.unwrap();
        let found = discover::find_devices(&parse(&file).1, &host).devices;
        let found_nodes = found[0]
            .nodes
            .iter()
            .map(|node| node.host_path.to_str().unwrap());
        assert_eq!(found_nodes.collect::<Vec<_>>().join(" "), nodes, "{file}");
        let requests_all_devices = file.contains("[[edits]]\nnodes = [\"/dev/hidraw0\"]");
        assert_eq!(requests_all_devices, row.contains("hidraw0"), "{file}");
        let has_class_nodes = file.contains("\n[[edits]]\nnodes = [");
        assert_eq!(has_class_nodes, requests_all_devices, "{file}");
    }
}

#[test]
fn nodes_of_other_devices_are_told_from_those_of_one() {
    for (node, sibling_paths, others) in [
        ("/dev/hidraw1", "/dev/hidraw2", "/dev/hidraw2"),
        ("/dev/video0", "/dev/video1 /dev/media0", "/dev/video1"),
        ("/dev/acme0_ctl", "/dev/acme0_dma0 /dev/acme0_dma1", ""),
        (
            "/dev/ttyUSB1",
            "/dev/ttyUSB10 /dev/ttyUSB1",
            "/dev/ttyUSB10",
        ),
        ("/dev/net/tun", "/dev/vhost-net", ""),
    ] {
        let sibling_paths: Vec<String> = sibling_paths.split(' ').map(str::to_owned).collect();
        let target = Target::parse(node).unwrap();
        let found = target.find_nodes_of_other_devices(&sibling_paths);
        assert_eq!(found.join(" "), others, "{node}");
    }
}
