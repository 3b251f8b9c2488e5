//! Names that several pieces of hardware have, such as the serial number of a cheap adapter.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use device_class::discover;
use device_class::host::RecordedHost;
use device_class::name::DeviceId;
use injection_plan::plan::{Authority, CheckpointDevices};
use injection_plan::request::quote;

use crate::names::request;
use crate::planning::{asker, directory, plan, recordings, shipped, shipped_class};

/// Two adapters with one serial number, and a third one with two ports.
fn serial_ports() -> RecordedHost {
    let mut host = String::new();
    for (usb, serial) in [("1-1", "0001"), ("1-2", "0001"), ("1-3", "A7")] {
        write!(
            host,
            "file /sys/devices/{usb}/serial\n| {serial}\n\
             link /sys/bus/usb/devices/{usb} ../../../devices/{usb}\n"
        )
        .unwrap();
    }
    for (number, port) in ["1-1:1.0", "1-2:1.0", "1-3:1.0", "1-3:1.1"]
        .iter()
        .enumerate()
    {
        let usb = &port[..3];
        write!(
            host,
            "char /dev/ttyUSB{number} 188:{number}\n\
             link /sys/class/tty/ttyUSB{number}/device ../../../devices/{usb}/{port}\n\
             dir /sys/devices/{usb}/{port}\n"
        )
        .unwrap();
    }
    RecordedHost::parse(&host).unwrap()
}

const WARNING: &str = "env SERIAL_VISIBLE_DEVICES=0001: `0001` is the name of 2 devices, of \
     which the container gets more than one: serial-1-1:1.0, serial-1-2:1.0; to give one, write its \
     id, such as serial-1-1:1.0";

#[test]
fn a_name_of_several_adapters_gives_all_with_a_warning() {
    let (class, host) = (shipped_class("serial-port"), serial_ports());
    for (value, count, warning) in [
        ("0001", 2, Some(WARNING)),
        // With `?` it is the same name.
        ("\"0001\"?", 2, Some("`0001` is the name of 2 devices")),
        (
            "devices.boathook.dev/serial=0001",
            2,
            Some("`0001` is the name of 2 devices"),
        ),
        (
            "0001,\"0001\",devices.boathook.dev/serial=0001",
            2,
            Some("`0001` is the name of 2 devices"),
        ),
        ("serial-1-1:1.0", 1, None),
        ("ttyUSB1", 1, None),
        ("0-1", 2, None),
        ("all", 4, None),
        // Both ports of one adapter are meant.
        ("A7", 2, None),
        ("1-3", 2, None),
    ] {
        let request = request(&class, value).unwrap().unwrap();
        let plan = plan(&class, &request, &host, &asker()).unwrap();
        assert_eq!(plan.grants[0].devices.len(), count, "{value}");
        match warning {
            Some(expected) => {
                assert_eq!(plan.warnings.len(), 1, "{value}: {:?}", plan.warnings);
                assert!(plan.warnings[0].contains(expected), "{:?}", plan.warnings);
            }
            None => assert_eq!(plan.warnings, [""; 0], "{value}"),
        }
    }
}

/// The kubelet has chosen one of the devices, so the container does not get all of them.
#[test]
fn a_pod_that_gets_one_of_them_is_not_warned() {
    let (class, host) = (shipped_class("serial-port"), serial_ports());
    let request = request(&class, "0001").unwrap().unwrap();
    for (ids, is_warned) in [
        (&["serial-1-1:1.0"][..], false),
        (&["serial-1-1:1.0", "serial-1-2:1.0"], true),
    ] {
        let ids = ids
            .iter()
            .map(|id| DeviceId::try_from((*id).to_owned()).unwrap());
        let resource = "devices.boathook.dev/serial".to_owned().try_into().unwrap();
        let authority = Authority::Kubelet(CheckpointDevices {
            devices: [(resource, ids.collect())].into(),
            ..CheckpointDevices::default()
        });
        let plan = plan(&class, &request, &host, &authority).unwrap();
        let mut warnings = plan.warnings.iter();
        let has_warning = warnings.any(|warning| warning.contains("is the name of 2 devices"));
        assert_eq!(has_warning, is_warned, "{:?}", plan.warnings);
    }
}

/// Names that several devices have on purpose, such as that of the card of several chips, are no
/// reason for a warning. Each row has a class, and a name that chance gives to several devices.
const NAMES_BY_CHANCE: &[(&str, &str)] = &[];

#[test]
fn names_that_devices_share_on_purpose_give_no_warning() {
    let mut found = BTreeSet::new();
    for class in shipped() {
        for case in recordings(directory("testdata").join(class.name.as_str())) {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host = RecordedHost::parse(&text).unwrap();
            let inventory = discover::find_devices(&class, &host);
            let names: BTreeSet<&String> = inventory
                .devices
                .iter()
                .flat_map(|device| &device.aliases)
                .collect();
            for name in names {
                let Ok(Some(request)) = request(&class, &quote(name)) else {
                    continue;
                };
                let Ok(plan) = plan(&class, &request, &host, &asker()) else {
                    continue;
                };
                if plan
                    .warnings
                    .iter()
                    .any(|warning| warning.contains("is the name of"))
                {
                    found.insert((class.name.to_string(), name.clone()));
                }
            }
        }
    }
    let expected = NAMES_BY_CHANCE.iter();
    let expected = expected.map(|(class, name)| ((*class).to_owned(), (*name).to_owned()));
    assert_eq!(found, expected.collect());
}
