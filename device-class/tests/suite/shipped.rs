//! The shipped classes, and the hosts that were recorded for them.

use std::path::Path;

use device_class::DeviceClass;
use device_class::host::RecordedHost;
use device_class::load::ClassSource;

/// The crate's directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn source(class: &str) -> ClassSource {
    let file = root().join(format!("classes/{class}.toml"));
    ClassSource::read(&file, &[]).unwrap()
}

pub(crate) fn class(name: &str) -> DeviceClass {
    source(name).parse().unwrap()
}

pub(crate) fn read(testdata: &str) -> String {
    std::fs::read_to_string(root().join("testdata").join(testdata)).unwrap()
}

/// The text of a recording.
pub(crate) fn recorded(host: &str) -> String {
    read(&format!("{host}/host.txt"))
}

pub(crate) fn host(recorded_host: &str) -> RecordedHost {
    RecordedHost::parse(&recorded(recorded_host)).unwrap()
}
