//! Tests of requests that name a device by the path of its node on the host.

use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::discover::{self, Device, FoundClass};
use device_class::host::RecordedHost;

use crate::names::{chosen, request};
use crate::planning::{directory, parse, recordings, shipped, shipped_class};

fn serial_ports() -> (DeviceClass, RecordedHost) {
    let text = std::fs::read_to_string(directory("testdata/serial-port/host.txt")).unwrap();
    let more = "link /dev/zigbee serial/by-id/usb-Other-if00\n\
        link /dev/any ttyUSB0\nlink /dev/loop loop\nlink /dev/null-link /dev/null\n\
        char /dev/null 1:3\nlink /dev/gone ttyUSB7\nchar /dev/copy 188:0\n";
    let host = RecordedHost::parse(&(text + more)).unwrap();
    (shipped_class("serial-port"), host)
}

#[test]
fn a_path_is_the_node_that_the_host_has_there() {
    let (class, host) = serial_ports();
    let second = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10K8WVB-if00-port0";
    for (value, devices) in [
        ("/dev/ttyUSB0", "serial-1-2:1.0"),
        ("/dev//ttyUSB0", "serial-1-2:1.0"),
        (second, "serial-1-3.4:1.0"),
        ("/dev/serial/by-id/usb-Other-if00", "serial-1-4:1.0"),
        ("/dev/zigbee", "serial-1-4:1.0"),
        ("/dev/any,/dev/ttyUSB0", "serial-1-2:1.0"),
        ("\"/dev/any\"", "serial-1-2:1.0"),
        ("devices.boathook.dev/serial=/dev/any", "serial-1-2:1.0"),
        ("/dev/zigbee,ttyUSB10", "serial-1-4:1.0 serial-1-3.4:1.0"),
    ] {
        let found = chosen(&class, &host, value);
        assert_eq!(found.as_deref(), Ok(devices), "{value}");
    }
    for (value, reason) in [
        // Its last component alone would be one.
        (
            "/dev/any/thing/ttyUSB0",
            "/dev/any/thing/ttyUSB0 does not exist",
        ),
        ("/dev/ttyusb0", "does not exist"),
        ("/dev/serial/by-id", "is a directory, not a device node"),
        ("/dev/ttyS0", "it is a node of none of them"),
        (
            "/dev/null-link",
            "it leads to /dev/null, which is a node of none of them",
        ),
        ("/dev/copy", "it is a node of none of them"),
        ("/dev/gone", "does not exist"),
        ("/dev/loop", "cannot look up /dev/loop"),
        ("/dev/../sys/class/tty/ttyUSB0", "is a directory"),
        ("/dev/ttyUSB0/", "serial-1-2:1.0"),
    ] {
        match chosen(&class, &host, value) {
            Ok(devices) => assert_eq!(devices, reason, "{value}"),
            Err(refused) => assert!(refused.contains(reason), "{value}: {refused}"),
        }
    }
}

#[test]
fn a_path_in_the_container_is_refused_with_what_to_write() {
    let (class, host) = serial_ports();
    let by_id = "/dev/serial/by-id/usb-Other-if00";
    let ignoring = parse(
        "tty",
        "version = 1\nresource = 'example.com/tty'\n\
         request = { env = 'TTYS', ignores_unknown = true }\n\
         [[discover]]\npath = '/dev/ttyUSB{index:number}'\n\
         [device]\nid = 'tty-{index}'\nnodes = ['/dev/ttyUSB{index}']\n",
    )
    .unwrap();
    for class in [&class, &ignoring] {
        for (item, host_path) in [
            ("/dev/ttyUSB0:/dev/ttyACM0".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:/dev/ttyUSB10:rwm".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:/ttyUSB10".to_owned(), "/dev/ttyUSB0"),
            ("/dev/ttyUSB0:rw".to_owned(), "/dev/ttyUSB0"),
            ("\"/dev/ttyUSB0:/dev/ttyUSB10\"".to_owned(), "/dev/ttyUSB0"),
            (format!("{by_id}:/dev/ttyACM0"), by_id),
            (format!("0,{by_id}:/dev/ttyACM0"), by_id),
        ] {
            let refused = chosen(class, &host, &item).unwrap_err();
            let advice = format!("write {host_path}, which the container has as well");
            assert!(refused.contains(&advice), "{item}: {refused}");
        }
    }
    // What such a class ignores is what the host does not have.
    let found = chosen(&ignoring, &host, "/dev/ttyUSB7,/dev/ttyUSB10,9-10");
    assert_eq!(found.as_deref(), Ok("tty-10"));
}

#[test]
fn a_node_of_several_devices_is_not_one_of_them() {
    let class = "version = 1\nresource = 'example.com/half'\nrequest = { env = 'HALVES' }\n\
        [[discover]]\ncount = 2\n[device]\nid = 'half-{index}'\nnodes = ['/dev/whole']\n";
    let class = parse("half", class).unwrap();
    let host = RecordedHost::parse("char /dev/whole 120:0\n").unwrap();
    let refused = chosen(&class, &host, "/dev/whole").unwrap_err();
    let reason = "/dev/whole is a node of several devices, half-0, half-1; name one of them";
    assert!(refused.contains(reason), "{refused}");
}

/// What each recorded host has of nodes is named by their paths.
#[test]
fn every_node_of_a_recorded_host_names_its_device() {
    for class in shipped() {
        for case in recordings(directory("testdata").join(class.name.as_str())) {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host = RecordedHost::parse(&text).unwrap();
            let inventory = discover::devices(&class, &host);
            let nodes = inventory.devices.iter().flat_map(|device| &device.nodes);
            let paths = nodes.map(|node| node.host.clone());
            let mut paths: Vec<PathBuf> = paths.filter(|it| it.starts_with("/dev/")).collect();
            paths.sort();
            paths.dedup();
            for path in paths {
                let value = path.to_str().unwrap();
                let request = request(&class, value).unwrap().unwrap();
                let Ok(FoundClass { inventory, .. }) =
                    discover::look_up(&class, request.wanted(), &host)
                else {
                    continue;
                };
                let has_it = |it: &&Device| it.nodes.iter().any(|node| node.host == path);
                let divided = inventory.divided.iter().filter(has_it).count();
                let users = inventory.devices.iter().filter(has_it);
                let users: Vec<&str> = users.map(|it| it.id.as_str()).collect();
                match request.selection.choose(&class, &inventory) {
                    Ok(chosen) if divided > 0 => assert_eq!(chosen.len(), 1, "{value}"),
                    Ok(chosen) => assert_eq!([chosen[0].id.as_str()], *users, "{value}"),
                    Err(_) => assert!(users.len() > 1, "{}: {value}", case.display()),
                }
            }
        }
    }
}
