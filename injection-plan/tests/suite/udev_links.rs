//! udev's links to the nodes of a class with `udev_links`.

use std::fmt::Write;

use device_class::host::{HostRecorder, RecordedHost};

use crate::golden::plan_text;
use crate::planning::{directory, parse, shipped_class};

const VARIABLE: &str = "SERIAL_VISIBLE_DEVICES";

fn serial_ports(more: &str) -> RecordedHost {
    let text = std::fs::read_to_string(directory("testdata/serial-port/host.txt")).unwrap();
    RecordedHost::parse(&(text + more)).unwrap()
}

/// The database has a file for each device, and a start must not read those of other devices.
#[test]
fn links_of_requested_devices_alone_are_looked_up() {
    let host = serial_ports("");
    for (value, read, unread) in [
        ("ttyUSB10", "c188:10", "c188:0"),
        ("/dev/zigbee", "c188:0", "c188:10"),
    ] {
        let recording = HostRecorder::new(&host);
        let plan = plan_text(
            &shipped_class("serial-port"),
            &recording,
            &[(VARIABLE, value)],
        );
        assert!(plan.contains("/dev/serial/by-path/"), "{plan}");
        let text = recording.to_string();
        assert!(text.contains(&format!("/run/udev/data/{read}\n")), "{text}");
        assert!(
            !text.contains(&format!("/run/udev/data/{unread}\n")),
            "{text}"
        );
    }
}

#[test]
fn only_a_class_that_asks_for_links_reads_the_database() {
    let class = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
        discover = [{ path = '/dev/ttyUSB{number:number}' }]\n\
        [device]\nid = 'x-{number}'\nnodes = [{ path = '/dev/ttyUSB{number}', KEY }]\n";
    let host = serial_ports("");
    for (key, has_links) in [("udev_links = true", true), ("udev_links = false", false)] {
        let recording = HostRecorder::new(&host);
        let class = parse("x", &class.replace("KEY", key)).unwrap();
        let plan = plan_text(&class, &recording, &[("X", "all")]);
        assert!(plan.contains("/dev/ttyUSB10 "), "{plan}");
        assert_eq!(plan.contains("/dev/modem -> ttyUSB10"), has_links, "{plan}");
        let text = recording.to_string();
        assert_eq!(text.contains("/run/udev"), has_links, "{text}");
    }
}

#[test]
fn a_node_of_the_whole_class_has_links_too() {
    let class = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
        discover = [{ count = 1 }]\n[device]\nid = 'x'\n\
        [[edits]]\nnodes = [{ path = '/dev/ttyUSB10', udev_links = true }]\n";
    let class = parse("x", class).unwrap();
    let plan = plan_text(&class, &serial_ports(""), &[("X", "all")]);
    assert!(plan.contains("/dev/modem -> ttyUSB10"), "{plan}");
}

/// A broken rule of udev can give a node any number of links.
#[test]
fn a_node_has_a_limited_number_of_links() {
    let mut more = String::from("file /run/udev/data/c166:0\n");
    for index in 0..200 {
        writeln!(more, "| S:many/{index}").unwrap();
    }
    for index in 0..200 {
        writeln!(more, "link /dev/many/{index} ../ttyACM0").unwrap();
    }
    let host = serial_ports(&more);
    let plan = plan_text(
        &shipped_class("serial-port"),
        &host,
        &[(VARIABLE, "ttyACM0")],
    );
    assert_eq!(plan.matches("/dev/many/").count(), 64, "{plan}");
}

/// The link of one device is the place that the request chooses for another one.
#[test]
fn a_requested_place_wins_over_a_link() {
    let host = serial_ports("");
    let value = "ttyUSB0:/dev/modem,ttyUSB10";
    let plan = plan_text(&shipped_class("serial-port"), &host, &[(VARIABLE, value)]);
    assert!(plan.contains("/dev/modem from /dev/ttyUSB0 "), "{plan}");
    assert!(!plan.contains("/dev/modem -> "), "{plan}");
}
