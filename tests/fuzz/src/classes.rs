//! Class files, and requests for devices of a class.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use device_class::DeviceClass;
use device_class::discover::{Inventory, MAX_DEVICES, scan_devices};
use device_class::driver_properties::{self, DriverProperties};
use device_class::host::RecordedHost;
use device_class::name::ClassName;
use device_class::template::Attributes;
use injection_plan::request::{Environment, MAX_REQUEST_BYTES, Request};

macro_rules! shipped {
    ($class:literal, $host:literal) => {
        (
            $class,
            include_str!(concat!("../../../device-class/classes/", $class, ".toml")),
            include_str!(concat!(
                "../../../device-class/testdata/",
                $host,
                "/host.txt"
            )),
        )
    };
}

/// Classes, each with a host that has devices of it.
const SHIPPED: [(&str, &str, &str); 3] = [
    shipped!("dummy-npu", "dummy-npu"),
    shipped!("nvidia-gpu", "nvidia-gpu/h200"),
    shipped!("ascend-npu", "ascend-npu/310b"),
];

fn parse(name: &str, text: &str) -> Result<DeviceClass, String> {
    let name = ClassName::try_from(name.to_owned()).unwrap();
    DeviceClass::parse(name, Path::new("/class.toml"), text).map_err(|error| error.to_string())
}

pub(crate) fn class_file(bytes: &[u8]) {
    static HOST: LazyLock<RecordedHost> =
        LazyLock::new(|| RecordedHost::parse(SHIPPED[0].2).unwrap());
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    match parse("fuzz", text) {
        Ok(class) => {
            let inventory = scan_devices(&class, &*HOST);
            assert!(inventory.devices.len() <= MAX_DEVICES);
        }
        Err(message) => assert!(message.starts_with("/class.toml"), "{message}"),
    }
}

/// Finds the shipped class of that name, or else takes one of them, with the devices of a host.
pub(crate) fn find_class(name: &str) -> &'static (DeviceClass, Inventory) {
    static KNOWN: LazyLock<Vec<(DeviceClass, Inventory)>> = LazyLock::new(|| {
        let classes = SHIPPED.iter().map(|(name, text, host)| {
            let class = parse(name, text).unwrap();
            let inventory = scan_devices(&class, &RecordedHost::parse(host).unwrap());
            (class, inventory)
        });
        classes.collect()
    });
    let of_name = KNOWN.iter().find(|(class, _)| class.name.as_str() == name);
    of_name.unwrap_or(&KNOWN[0])
}

/// The input is a class's name, then lines of `VARIABLE=VALUE` or `@ANNOTATION=VALUE`.
pub(crate) fn request(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let (name, lines) = text.split_once('\n').unwrap_or((text, ""));
    let (class, inventory) = find_class(name);
    let (mut variables, mut annotations) = (Vec::new(), HashMap::new());
    for (key, value) in lines.lines().filter_map(|line| line.split_once('=')) {
        match key.strip_prefix('@') {
            Some(key) => {
                annotations.insert(key.to_owned(), value.to_owned());
            }
            None => variables.push(format!("{key}={value}")),
        }
    }
    let variables = Environment::from(variables);
    let annotation = |key: &str| annotations.get(key).map(String::as_str);
    match Request::find(class, &variables, annotation) {
        Ok(None) => {}
        Ok(Some(request)) => match request.selection.choose_devices(class, inventory) {
            Ok(chosen) => {
                let mut ids: Vec<_> = chosen.iter().map(|device| device.id.as_str()).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), chosen.len(), "a device is chosen twice");
            }
            Err(error) => assert_short(&error.to_string()),
        },
        Err(error) => assert_short(&error.to_string()),
    }
}

/// A message does not repeat a request of any length.
fn assert_short(message: &str) {
    assert!(
        message.len() < MAX_REQUEST_BYTES / 16,
        "{} bytes",
        message.len()
    );
}

/// The input is what a driver's program prints. Its facts survive their file, and the
/// devices of the host are found with them.
pub(crate) fn facts(bytes: &[u8]) {
    let (class, _) = find_class("nvidia-gpu");
    let printed = String::from_utf8_lossy(bytes);
    let found = class.spec.property_programs.iter();
    let facts = DriverProperties::from_pairs(
        found.flat_map(|program| program.parse_properties(&printed, &Attributes::new())),
    );
    let mut host = RecordedHost::parse(SHIPPED[1].2).unwrap();
    let text = facts.to_file_text(&host, &["/usr/bin/nvidia-smi -q -x".to_owned()]);
    assert!(!text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
    for line in text.lines() {
        let (key, value) = line.split_once('\t').unwrap();
        assert!(!key.is_empty() && !value.is_empty() && !value.contains('\t'));
    }
    // A file that is as it was written, and one of others' bytes.
    for content in [text.as_bytes(), bytes] {
        host.add_file(
            driver_properties::properties_file_path(&class.name),
            content,
        );
        let inventory = scan_devices(class, &host);
        assert!(inventory.devices.len() <= MAX_DEVICES);
    }
}
