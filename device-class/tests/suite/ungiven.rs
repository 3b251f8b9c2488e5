//! Hosts that are containers themselves, which were given only some of a machine's devices.

use device_class::discover::{self, Inventory};
use device_class::host::RecordedHost;

use crate::{parse, rows, shipped};

/// Three devices, of which the driver's files show all.
const CLASS: &str = r#"
version = 1
resource = "chip.example/chip"
request = { env = "CHIP_VISIBLE_DEVICES" }
discover = [{ path = "/sys/class/chip/chip{number:number}" }]
[device]
id = "chip-{number}"
nodes = [{ path = "/dev/chip{number}", driver = "chip", make = { minor = "{number}" } }]
"#;

const HOST: &str = "\
file /proc/devices
| Character devices:
| 240 chip
dir /sys/class/chip/chip0
dir /sys/class/chip/chip1
dir /sys/class/chip/chip2
";

/// The user namespace of the process, the nodes that exist, and the devices that are there, all of
/// them healthy.
const CASES: &str = "
# An unprivileged container of LXC with one device.
user:[4026532400] | 1 | 1
user:[4026532400] | 0 2 | 0 2
user:[4026532400] | 0 1 2 | 0 1 2
# No device has its node: the driver has not made them yet, and the refusal says how.
user:[4026532400] |  | 0 1 2
# Here the hook makes what lacks.
user:[4026531837] | 1 | 0 1 2
 | 1 | 0 1 2
";

fn healthy(inventory: &Inventory) -> Vec<&str> {
    let devices = inventory.devices.iter();
    let healthy = devices.filter(|device| device.health.is_healthy());
    healthy.map(|device| device.id.as_str()).collect()
}

/// Also a node that the hook would not create makes a device unhealthy, if it lacks.
#[test]
fn a_device_without_a_node_is_absent_where_none_can_be_created() {
    let without_make = CLASS.replace(", driver = \"chip\", make = { minor = \"{number}\" }", "");
    for class in [CLASS, &without_make] {
        check_cases(class);
    }
}

fn check_cases(class_text: &str) {
    let class = parse("chip", class_text).unwrap();
    let are_created = class_text.contains("make");
    for [namespace, nodes, expected] in rows(CASES) {
        let mut text = HOST.to_owned();
        if !namespace.is_empty() {
            text.push_str(&format!("link /proc/self/ns/user {namespace}\n"));
        }
        for node in nodes.split_whitespace() {
            text.push_str(&format!("char /dev/chip{node} 240:{node}\n"));
        }
        let host = RecordedHost::parse(&text).unwrap();
        let inventory = discover::find_devices(&class, &host);
        let offered = if are_created { &expected } else { &nodes };
        let expected_devices = expected.split_whitespace().count();
        let expected: Vec<String> = offered
            .split_whitespace()
            .map(|number| format!("chip-{number}"))
            .collect();
        assert_eq!(healthy(&inventory), expected, "{namespace}: {nodes}");
        assert_eq!(inventory.devices.len(), expected_devices, "{inventory}");
        // Absent devices have no number, as for the programs of vendors.
        let indices = inventory.devices.iter().map(|device| device.index.clone());
        let numbers = (0..expected_devices).map(|number| Some(number.to_string()));
        assert!(indices.eq(numbers), "{inventory}");
        let absent = &inventory.inaccessible_devices;
        assert_eq!(absent.len(), 3 - expected_devices, "{absent:?}");
        for device in absent {
            let (id, reason) = (device.id.as_str(), &device.reason);
            assert!(!expected.iter().any(|other| other == id), "{id}");
            let node = format!("/dev/chip{} does not exist", id.trim_start_matches("chip-"));
            assert!(reason.contains(&node), "{reason}");
            assert!(reason.contains("was not given this one"), "{reason}");
        }
    }
}

/// As with Docker in an unprivileged container of Proxmox, which has one of two GPUs.
#[test]
fn one_gpu_of_two_is_offered() {
    let path = shipped::root().join("testdata/nvidia-gpu/h200/host.txt");
    let host = std::fs::read_to_string(path).unwrap();
    let nodes = host
        .lines()
        .filter(|line| !line.starts_with("char /dev/nvidia0 "));
    let given: Vec<&str> = nodes.collect();
    let text = format!(
        "{}\nlink /proc/self/ns/user user:[4026532400]\n",
        given.join("\n")
    );
    let class = shipped::class("nvidia-gpu");
    for (text, expected) in [(&host, 2), (&text, 1)] {
        let host = RecordedHost::parse(text).unwrap();
        let inventory = discover::find_devices(&class, &host);
        assert_eq!(inventory.devices.len(), expected);
        assert_eq!(healthy(&inventory).len(), expected);
    }
}

/// The recorded hosts of the classes whose devices have render nodes of DRM.
const RENDERING: [&str; 8] = [
    "amd-gpu/mixed",
    "amd-gpu-monitoring",
    "hygon-dcu",
    "intel-gpu",
    "intel-gpu-monitoring",
    "metax-gpu",
    "mthreads-gpu",
    "rockchip-npu",
];

/// Guides for LXC give a container /dev/dri/renderD128 alone. Only a display needs the node of
/// the card, while nothing computes and codes video without the render node. The plugin of one
/// vendor offers a card also by the node of the card alone. Without any node no card is healthy.
#[test]
fn a_render_node_is_enough() {
    for case in RENDERING {
        let path = shipped::root().join(format!("testdata/{case}/host.txt"));
        let host = std::fs::read_to_string(path).unwrap();
        let class = shipped::class(case.split('/').next().unwrap());
        let count_healthy = |kinds: &[&str]| {
            let is_given = |line: &&str| !kinds.iter().any(|kind| line.starts_with(kind));
            let lines: Vec<&str> = host.lines().filter(is_given).collect();
            let host = RecordedHost::parse(&lines.join("\n")).unwrap();
            healthy(&discover::find_devices(&class, &host)).len()
        };
        let (card, render) = ("char /dev/dri/card", "char /dev/dri/renderD");
        let all = count_healthy(&[]);
        assert!(all > 0, "{case}");
        assert_eq!(count_healthy(&[card]), all, "{case}");
        let by_card = if case == "intel-gpu" { all } else { 0 };
        assert_eq!(count_healthy(&[render]), by_card, "{case}");
        assert_eq!(count_healthy(&[card, render]), 0, "{case}");
    }
}

/// A card that draws only has no render node in sysfs either.
#[test]
fn a_card_without_any_node_is_unhealthy() {
    let card = "link /sys/class/drm/card0 ../../devices/pci0000:00/0000:00:02.0/drm/card0\n\
                link /sys/devices/pci0000:00/0000:00:02.0/drm/card0/device ../../../0000:00:02.0\n\
                file /sys/devices/pci0000:00/0000:00:02.0/vendor\n| VENDOR\n\
                file /sys/devices/pci0000:00/0000:00:02.0/config\n| (the space)\n\
                link /sys/bus/pci/devices/0000:00:02.0 ../../../devices/pci0000:00/0000:00:02.0\n";
    let node = "char /dev/dri/card0 226:0\n";
    for (class, vendor) in [("intel-gpu", "0x8086"), ("metax-gpu", "0x9999")] {
        let class = shipped::class(class);
        let card = card.replace("VENDOR", vendor);
        let find = |text: &str| discover::find_devices(&class, &RecordedHost::parse(text).unwrap());
        let without = find(&card);
        assert_eq!(without.devices.len(), 1, "{:?}", without.warnings);
        let health = without.devices[0].health.to_string();
        assert!(health.contains("/dev/dri/card0 does not exist"), "{health}");
        assert_eq!(healthy(&find(&format!("{card}{node}"))).len(), 1);
    }
}
