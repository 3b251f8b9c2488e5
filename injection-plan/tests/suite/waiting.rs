//! Requests for devices that the host does not have yet.

use device_class::DeviceClass;
use device_class::host::RecordedHost;
use injection_plan::plan::{Authority, CheckpointDevices};
use injection_plan::request::{
    DeviceList, Environment, Request, RequestSource, format_awaited_name,
};

use crate::names::request;
use crate::planning::{asker, directory, parse, plan, shipped_class, with_causes};

fn serial_ports() -> (DeviceClass, RecordedHost) {
    let text = std::fs::read_to_string(directory("testdata/serial-port/host.txt")).unwrap();
    (
        shipped_class("serial-port"),
        RecordedHost::parse(&text).unwrap(),
    )
}

/// Returns the devices of a container, and what it waits for.
fn planned(
    class: &DeviceClass,
    host: &RecordedHost,
    value: &str,
    authority: &Authority,
) -> Result<String, String> {
    let request = request(class, value)?.ok_or("nothing")?;
    let plan = plan(class, &request, host, authority)?;
    let [grant] = &plan.grants[..] else {
        panic!("one grant");
    };
    let waiting = grant
        .awaited_devices
        .iter()
        .map(|awaited| format!("?{}", awaited.to_request_text()));
    let parts: Vec<String> = grant
        .devices
        .iter()
        .map(ToString::to_string)
        .chain(waiting)
        .collect();
    Ok(parts.join(" "))
}

/// `boathook list` prints a serial number of digits so that a container can wait for it.
#[test]
fn a_container_waits_for_each_name_that_is_printed() {
    let (class, host) = serial_ports();
    for (name, item) in [
        ("20220708152250", "\"20220708152250\"?"),
        ("0001", "\"0001\"?"),
        ("x9", "x9?"),
        ("\"1-9\"", "\"1-9\"?"),
    ] {
        assert_eq!(format_awaited_name(name), item);
        let found = planned(&class, &host, item, &asker()).unwrap();
        assert_eq!(found, format!("?\"{}\"", name.trim_matches('"')));
    }
}

#[test]
fn a_container_waits_for_what_the_host_does_not_have() {
    let (class, host) = serial_ports();
    for (value, expected) in [
        ("ttyUSB0?", "serial-1-2:1.0"),
        ("x9?", "?\"x9\""),
        ("HD Pro \"C920\"?", "?\"HD Pro \"\"C920\"\"\""),
        ("ttyUSB0,x9?,\"1-9\"?", "serial-1-2:1.0 ?\"x9\" ?\"1-9\""),
        (
            "/dev/ttyZigbee:/dev/ttyACM0?",
            "?\"/dev/ttyZigbee\":/dev/ttyACM0",
        ),
        ("devices.boathook.dev/serial=x9?", "?\"x9\""),
        ("all", "serial-1-2:1.0 serial-1-4:1.0 serial-1-3.4:1.0 ?all"),
    ] {
        let found = planned(&class, &host, value, &asker());
        match found.as_deref() {
            Ok(found) if value == "all" => assert!(found.ends_with(" ?all"), "{found}"),
            found => assert_eq!(found, Ok(expected), "{value}"),
        }
    }
    for (value, reason) in [
        ("x9", "class serial-port has no device `x9`"),
        ("x9?,x8", "class serial-port has no device `x8`"),
        (
            "0?",
            "`0?` is an index or a range, which means other devices",
        ),
        (
            "7?",
            "`7?` is an index or a range, which means other devices",
        ),
        ("0-3?", "`0-3?` is an index or a range"),
        (
            "devices.boathook.dev/serial=7?",
            "`7?` is an index or a range",
        ),
        ("0:1?", "`0:1?` is an index or a range"),
        ("/dev/serial/by-id?", "is a directory, not a device node"),
        ("/dev/ttyS0?", "it is a node of none of them"),
        ("other.com/x=y?", "is of the kind other.com/x"),
        (
            "x9?:/dev/ttyACM0",
            "the `?` of `x9?:/dev/ttyACM0` is not at its end; write x9:/dev/ttyACM0?",
        ),
        (
            "/dev/ttyZigbee?:/dev/ttyACM0",
            "write /dev/ttyZigbee:/dev/ttyACM0?",
        ),
    ] {
        let refused = planned(&class, &host, value, &asker()).unwrap_err();
        assert!(refused.contains(reason), "{value}: {refused}");
    }
    let names = |count: usize| -> String { (0..count).map(|n| format!("x{n}?,")).collect() };
    planned(&class, &host, &names(64), &asker()).unwrap();
    // A device that the host has is awaited again when it is unplugged, at each of its paths.
    let paths = |count: usize| -> String {
        let items = (0..count).map(|n| format!("/dev/serial/by-id/a:/dev/a{n}?,"));
        items.collect()
    };
    planned(&class, &host, &paths(64), &asker()).unwrap();
    for value in [names(65), paths(65), names(32) + &paths(33)] {
        let refused = planned(&class, &host, &value, &asker()).unwrap_err();
        assert!(
            refused.contains("65 devices that may come later; a container may wait for 64"),
            "{refused}"
        );
    }
}

#[test]
fn a_class_can_let_all_names_wait() {
    let text = "version = 1\nresource = 'example.com/stick'\nfollow = true\nlate = true\n\
        request = { env = 'STICKS' }\n[[discover]]\npath = '/sys/sticks/{port}'\n\
        [device]\nid = 'usb-{port}'\nnodes = ['/dev/{port}']\n";
    let class = parse("stick", text).unwrap();
    let host = RecordedHost::parse("dir /sys/sticks/a\nchar /dev/a 4:1\n").unwrap();
    for (value, expected) in [
        ("usb-a,usb-b", "usb-a ?\"usb-b\""),
        ("usb-b:/dev/x", "?\"usb-b\":/dev/x"),
    ] {
        assert_eq!(
            planned(&class, &host, value, &asker()).as_deref(),
            Ok(expected)
        );
    }
    let refused = planned(&class, &host, "0-7", &asker()).unwrap_err();
    assert!(refused.contains("no device `1`"), "{refused}");
    let error = parse("stick", &text.replace("follow = true\n", "")).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("`late = true` needs `follow = true`"),
        "{error}"
    );
}

#[test]
fn others_who_choose_the_devices_do_not_wait() {
    let (class, host) = serial_ports();
    let pod = Authority::Kubelet(CheckpointDevices::default());
    assert_eq!(planned(&class, &host, "x9?", &pod).as_deref(), Ok(""));
    let request = request(&class, "x9?").unwrap().unwrap();
    let notes = plan(&class, &request, &host, &pod).unwrap().notes;
    let reason = "a device cannot come later in a pod, which has those that the kubelet recorded";
    assert!(
        notes.iter().any(|note| note.to_string().contains(reason)),
        "{notes:?}"
    );
    let devices = || DeviceList::parse("x9?").unwrap();
    for (source, reason) in [
        (
            RequestSource::Cdi { devices: devices() },
            "x9? may come later, and a CDI specification gives what is there",
        ),
        (
            RequestSource::Attach { devices: devices() },
            "x9? may come later, and `boathook attach` gives what is there",
        ),
    ] {
        let refused = Request::parse(&class, &Environment::default(), source).unwrap_err();
        let refused = with_causes(refused);
        assert!(refused.contains(reason), "{refused}");
    }
}

/// A mistyped name that does not wait is refused, and the device that was probably meant is named.
#[test]
fn a_refused_name_is_named_with_a_similar_one() {
    let (class, host) = serial_ports();
    for (value, meant) in [
        ("ttyUSB9", Some("ttyUSB0")),
        ("/dev/ttyUSB9", Some("ttyUSB0")),
        ("/dev/ttyusb0", Some("ttyUSB0")),
        ("devices.boathook.dev/serial=ttyUSB9", Some("ttyUSB0")),
        ("f074cc5adcc9ed12", Some("f074cc5adcc9ed11")),
        ("9f3ad8e21b44c001", None),
        ("7", None),
        // Three ports have names with one letter less, more or other.
        ("ttyUSB2", None),
    ] {
        let refused = planned(&class, &host, value, &asker()).unwrap_err();
        let advice = refused.split_once("; did you mean ");
        let name = advice.and_then(|(_, advice)| advice.split(' ').next());
        assert_eq!(name, meant, "{value}: {refused}");
    }
}

/// A CAN bus is not requested by its interface.
#[test]
fn the_device_of_an_interface_is_named() {
    let path = directory("testdata/can/host.txt");
    let host = RecordedHost::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let class = shipped_class("can");
    let refused = planned(&class, &host, "can2", &asker()).unwrap_err();
    assert!(
        refused.ends_with("; did you mean can-0000:03:00.0?"),
        "{refused}"
    );
}

/// Compose's list form and files of variables keep the quotes that a shell removes.
#[test]
fn quotes_around_a_whole_value_are_pointed_out() {
    let (class, host) = serial_ports();
    for (value, unquoted) in [
        ("'ttyUSB0'", "ttyUSB0"),
        ("\"f074cc5adcc9ed11?\"", "f074cc5adcc9ed11?"),
        (
            "\"/dev/ttyZigbee:/dev/ttyACM0\"",
            "/dev/ttyZigbee:/dev/ttyACM0",
        ),
        ("\"all\"", "all"),
        (" 'all' ", "all"),
        ("'ttyUSB0,ttyUSB1'", "ttyUSB0,ttyUSB1"),
        ("x9", ""),
        ("\"x9\",\"x8\"", ""),
    ] {
        let refused = planned(&class, &host, value, &asker()).unwrap_err();
        let advice = format!("write - 'SERIAL_VISIBLE_DEVICES={unquoted}' in a list of compose");
        assert_eq!(refused.contains(&advice), !unquoted.is_empty(), "{refused}");
    }
    // A name whose quotes are needed is no mistake.
    assert!(planned(&class, &host, "\"ttyUSB0\"", &asker()).is_ok());
}

/// A mistyped name waits for ever, so the device that was probably meant is named.
#[test]
fn a_similar_device_is_named_beside_an_awaited_name() {
    let (class, host) = serial_ports();
    let meant = "(also called serial-1-2:1.0, ttyUSB0, \
                 usb-ITead_Sonoff_Zigbee_3.0_USB_Dongle_Plus_V2_f074cc5adcc9ed11-if00-port0, \"1-2\")?";
    for (value, name) in [
        ("f074cc5adcc9ed12?", Some("f074cc5adcc9ed11")),
        ("f074cc5adcc9?", Some("f074cc5adcc9ed11")),
        ("f074cc5adcc9de11:/dev/ttyACM0?", Some("f074cc5adcc9ed11")),
        (
            "/dev/serial/by-path/f074cc5adcc9ed11?",
            Some("f074cc5adcc9ed11"),
        ),
        ("9f3ad8e21b44c001?", None),
        ("/dev/ttyZigbee?", None),
        ("all", None),
    ] {
        let request = request(&class, value).unwrap().unwrap();
        let plan = plan(&class, &request, &host, &asker()).unwrap();
        let lines: Vec<String> = plan.grants[0].describe_awaited_devices().collect();
        let suggestion = lines
            .first()
            .and_then(|line| line.split_once("; did you mean "));
        let suggestion = suggestion.map(|(_, text)| text.to_owned());
        let expected = name.map(|name| format!("{name} {meant}"));
        assert_eq!(suggestion, expected, "{value}: {lines:?}");
        let explained = plan.to_string();
        assert_eq!(
            explained.contains("did you mean"),
            name.is_some(),
            "{explained}"
        );
    }
}
