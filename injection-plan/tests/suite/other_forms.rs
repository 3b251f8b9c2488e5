//! Items of requests in a form that other programs understand.

use device_class::host::RecordedHost;

use crate::names::{chosen, request};
use crate::planning::{asker, directory, plan, shipped_class};

/// A request for serial ports, and what its refusal says.
const REFUSED: &[(&str, &str)] = &[
    (
        "/dev/ttyUSB*",
        "`/dev/ttyUSB*` is a pattern, which a request cannot have; write \
         serial-1-2:1.0,serial-1-3.4:1.0,serial-1-5:1.0,serial-1-5:1.0.1",
    ),
    (
        "ttyUSB2*:/dev/x",
        "`ttyUSB2*` is a pattern, which a request cannot have; write serial-1-5:1.0,serial-1-5:1.0.1",
    ),
    (
        "devices.boathook.dev/serial=/dev/serial/by-id/*MosChip*-if00-port1",
        "is a pattern, which a request cannot have; write serial-1-5:1.0.1",
    ),
    (
        "*",
        "`*` is a pattern, which a request cannot have; write `all` or serial-1-4:1.0,",
    ),
    ("/dev/*USB1", "write serial-1-7:1.0"),
    // The slash is none of the characters that the star stands for.
    (
        "/*USB1",
        "write the names that `boathook list serial-port` shows",
    ),
    (
        "/dev/ttyUSB[01]",
        "is a pattern, which a request cannot have; write the names that `boathook list serial-port` shows",
    ),
    (
        "1a86:7523",
        "`1a86:7523` has the form of a vendor and a product, which all devices of one model share; \
         write the id, alias or path of a device, which `boathook list serial-port` shows",
    ),
    // These are other forms.
    (
        "\"/dev/ttyUSB*\"",
        "names no device of class serial-port on this host",
    ),
    ("1a86:75234", "has no device `1a86:75234` on this host"),
];

fn serial_ports() -> RecordedHost {
    let text = std::fs::read_to_string(directory("testdata/serial-port/host.txt")).unwrap();
    RecordedHost::parse(&text).unwrap()
}

#[test]
fn a_pattern_and_a_product_are_refused_with_the_form_to_write() {
    let (class, host) = (shipped_class("serial-port"), serial_ports());
    for (value, expected) in REFUSED {
        let refusal = chosen(&class, &host, value).unwrap_err();
        assert!(refusal.contains(expected), "{value}: {refusal}");
    }
    // Without a device, the reason is that there is none.
    let other_host = RecordedHost::parse("dir /dev\n").unwrap();
    let refusal = chosen(&class, &other_host, "/dev/ttyUSB*").unwrap_err();
    assert!(!refusal.contains("is a pattern"), "{refusal}");
    // A container may write what it likes, and the hook must not take long for it.
    let hostile_pattern = "*a".repeat(30_000);
    let refusal = chosen(&class, &host, &hostile_pattern).unwrap_err();
    assert!(refusal.contains("is a pattern"), "{refusal}");
}

/// The suffix `?` lets the container start, so a warning says what a refusal says otherwise.
#[test]
fn a_container_that_waits_for_a_pattern_is_warned() {
    let (class, host) = (shipped_class("serial-port"), serial_ports());
    for (value, expected) in [
        (
            "/dev/ttyUSB*?",
            Some("no device that comes later can have this name: `/dev/ttyUSB*` is a pattern"),
        ),
        (
            "1a86:7523?",
            Some(
                "no device that comes later can have this name: `1a86:7523` has the form of a vendor and a product",
            ),
        ),
        ("/dev/ttyUSB7?", None),
        ("ttyUSB0?", None),
    ] {
        let request = request(&class, value).unwrap().unwrap();
        let warnings = plan(&class, &request, &host, &asker()).unwrap().warnings;
        let other_host = RecordedHost::parse("dir /dev\n").unwrap();
        let warnings_there = plan(&class, &request, &other_host, &asker())
            .unwrap()
            .warnings;
        let has_warning = warnings_there
            .iter()
            .any(|it| it.contains("no device that comes later"));
        assert_eq!(
            has_warning,
            expected.is_some(),
            "{value}: {warnings_there:?}"
        );
        match expected {
            Some(expected) => assert!(warnings[0].contains(expected), "{value}: {warnings:?}"),
            None => assert_eq!(warnings, [""; 0], "{value}"),
        }
    }
}
