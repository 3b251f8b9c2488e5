//! Cameras and codecs: no node of a host is in two classes.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;
use device_class::name::CapabilityName;

use crate::planning::{directory, shipped_class};

/// Recorded hosts, with the numbers of their video nodes that v4l2-camera, v4l2-codec and pi-camera
/// have.
const CASES: [(&str, [&str; 3]); 6] = [
    (
        "v4l2-camera",
        ["0 10 40-41 50 52 60-61 70-71 96", "20 30 86 91-93", ""],
    ),
    ("v4l2-camera/udev", ["0 2 7-8", "6", ""]),
    ("v4l2-codec", ["", "10", ""]),
    ("v4l2-codec/udev", ["", "10-11 14", ""]),
    // The receiver of the nodes 8 to 15 has no sensor.
    ("pi-camera", ["", "19", "0-7 20-35"]),
    ("pi-camera/cm4", ["", "10", "0-3 13-16 20-23"]),
];

/// Returns the numbers of the nodes that containers get from the class: those of all devices, and
/// those that do not belong to one.
fn video_nodes(class: &DeviceClass, host: &RecordedHost) -> BTreeSet<u32> {
    let inventory = discover::find_devices(class, host);
    let capabilities: BTreeSet<CapabilityName> = BTreeSet::new();
    let attributes = &inventory.host_attributes;
    let shared = discover::find_control_nodes(class, &capabilities, attributes, host).unwrap();
    let nodes = inventory.devices.iter().flat_map(|device| &device.nodes);
    let numbers = nodes.chain(&shared).filter_map(|node| {
        let path = node.host_path.to_str().unwrap();
        path.strip_prefix("/dev/video")?.parse().ok()
    });
    numbers.collect()
}

/// Returns the numbers of a list such as `1 3-5`.
fn numbers(list: &str) -> BTreeSet<u32> {
    let ranges = list.split_whitespace().map(|item| -> RangeInclusive<u32> {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        first.parse().unwrap()..=last.parse().unwrap()
    });
    ranges.flatten().collect()
}

#[test]
fn no_node_is_of_two_classes() {
    let classes = ["v4l2-camera", "v4l2-codec", "pi-camera"].map(shipped_class);
    for (recorded, expected) in CASES {
        let path = directory(&format!("testdata/{recorded}/host.txt"));
        let host = RecordedHost::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut taken = BTreeSet::new();
        for (class, expected) in classes.iter().zip(expected) {
            let found = video_nodes(class, &host);
            assert_eq!(found, numbers(expected), "{recorded}: {}", class.name);
            assert!(taken.is_disjoint(&found), "{recorded}: {}", class.name);
            taken.extend(found);
        }
    }
}

/// The classes have one expression for the drivers of codecs, in two files.
#[test]
fn both_classes_know_the_same_drivers_of_codecs() {
    let expression = |class: &str, attribute: &str| {
        let file = directory(&format!("classes/{class}.toml"));
        let text = std::fs::read_to_string(file).unwrap();
        let begin = format!("{{ name = \"{attribute}\", value = \"{{driver}}\", regex = ");
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(&begin));
        line.unwrap().to_owned()
    };
    assert_eq!(
        expression("v4l2-camera", "codec"),
        expression("v4l2-codec", "kind")
    );
}
