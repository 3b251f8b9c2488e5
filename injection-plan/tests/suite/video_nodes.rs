//! Cameras and codecs: no node of a host is in both classes.

use std::collections::BTreeSet;

use device_class::discover;
use device_class::host::RecordedHost;

use crate::planning::{directory, shipped_class};

#[test]
fn no_node_is_of_a_camera_and_of_a_codec() {
    for (recorded, of_cameras, of_codecs) in [
        (
            "v4l2-camera",
            "/dev/video0 /dev/video10 /dev/video40 /dev/video41 /dev/video50 /dev/video52 \
             /dev/video60 /dev/video61 /dev/video70 /dev/video71 /dev/video96",
            "/dev/video20 /dev/video30 /dev/video86 /dev/video91 /dev/video92 /dev/video93",
        ),
        ("v4l2-codec", "", "/dev/video10"),
    ] {
        let path = directory(&format!("testdata/{recorded}/host.txt"));
        let host = RecordedHost::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let nodes = |class: &str| -> String {
            let devices = discover::find_devices(&shipped_class(class), &host).devices;
            let nodes = devices.iter().flat_map(|device| &device.nodes);
            let nodes: BTreeSet<String> = nodes
                .map(|node| node.host_path.display().to_string())
                .collect();
            nodes.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(nodes("v4l2-camera"), of_cameras, "{recorded}");
        assert_eq!(nodes("v4l2-codec"), of_codecs, "{recorded}");
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
