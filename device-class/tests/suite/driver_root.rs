//! A driver that keeps its files in a root of its own, as one that runs in a
//! container does: files come from there, nodes from the host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::class::FileKind;
use device_class::config::Config;
use device_class::discover::{self, FileSource, FoundClass, PathLookup};
use device_class::host::{HostRecorder, RecordedHost};

use crate::parse;

const CLASS: &str = r#"
    version = 1
    resource = "example.com/chip"
    request = { env = "CHIPS" }
    driver_root = "/run/{name}/driver"
    attributes = [{ name = "name", file = "/sys/chip/name" }]
    discover = [{ path = "/dev/chip{index:number}" }]
    device = { id = "chip-{index}", nodes = ["/dev/chip{index}"] }
    edits = [{
      nodes = ["/dev/chipctl"],
      libraries = ["libchip.so.1"],
      binaries = ["/usr/bin/chip-info"],
      files = [{ for_each = "/lib/firmware/chip/{blob}", path = "/lib/firmware/chip/{blob}" }],
      directories = ["/usr/share/chip"],
    }]
"#;

/// The host has files of the same names, which are not the driver's.
const HOST: &str = "\
    char /dev/chip0 240:0
    char /dev/chipctl 240:255
    file /sys/chip/name
| chip
    file /usr/bin/chip-info
    lib libchip.so.1 /usr/lib/libchip.so.0.9
    link /run/chip/driver /opt/chip
    link /opt/chip/lib usr/lib
    file /opt/chip/usr/lib/libchip.so.2.0
    link /opt/chip/usr/lib/libchip.so.1 /lib/libchip.so.2.0
    lib libchip.so.1 /lib/libchip.so.1 /opt/chip
    file /opt/chip/usr/bin/chip-info
    file /opt/chip/usr/lib/firmware/chip/a.bin
    dir /opt/chip/usr/share/chip
";

/// The class, with what config.toml says of it.
fn class(text: &str, config: &str) -> DeviceClass {
    let class = parse("chip", text).unwrap();
    let config: Config = toml::from_str(&format!("[class.chip]\n{config}")).unwrap();
    config.with_settings(class, Path::new("chip.toml")).unwrap()
}

fn files_are_the_drivers_and_nodes_the_hosts(found: &FoundClass, root: &str) {
    let edits = &found.edits;
    assert_eq!(edits.unusable_reasons().next(), None);
    assert!(matches!(edits.nodes[0].number, PathLookup::Found(_)));
    let in_root = |path: &str| PathLookup::Found(PathBuf::from(format!("{root}{path}")));
    assert_eq!(edits.libraries[0].file, in_root("/usr/lib/libchip.so.2.0"));
    let file_in_root = |path: &str| {
        let (path, kind) = (format!("{root}{path}").into(), FileKind::File);
        PathLookup::Found(FileSource {
            path,
            kind,
            is_writable: false,
            is_image_module: false,
        })
    };
    assert_eq!(edits.files[0].file, file_in_root("/usr/bin/chip-info"));
    assert_eq!(
        edits.files[0].container_path,
        Path::new("/usr/bin/chip-info")
    );
    assert_eq!(
        edits.files[1].file,
        file_in_root("/usr/lib/firmware/chip/a.bin")
    );
    assert_eq!(
        edits.files[1].container_path,
        Path::new("/lib/firmware/chip/a.bin")
    );
    assert_eq!(edits.directories[0].directory, in_root("/usr/share/chip"));
}

#[test]
fn the_class_or_the_configuration_names_the_root() {
    let host = RecordedHost::parse(HOST).unwrap();
    let plain = CLASS.replace("driver_root = \"/run/{name}/driver\"", "");
    for (class_text, config, root) in [
        (CLASS, "", "/opt/chip"),
        (&plain, "driver_root = '/opt/chip'", "/opt/chip"),
        (CLASS, "driver_root = '/opt/chip'", "/opt/chip"),
    ] {
        let class = class(class_text, config);
        let found = discover::look_up_class(&class, (&BTreeSet::new()).into(), &host).unwrap();
        files_are_the_drivers_and_nodes_the_hosts(&found, root);
    }
}

#[test]
fn a_recording_has_the_files_of_the_drivers_root() {
    let host = RecordedHost::parse(HOST).unwrap();
    let class = class(CLASS, "");
    let recording = HostRecorder::new(&host);
    discover::look_up_class(&class, (&BTreeSet::new()).into(), &recording).unwrap();
    let written = recording.to_string();
    let again = RecordedHost::parse(&written).unwrap();
    let found = discover::look_up_class(&class, (&BTreeSet::new()).into(), &again);
    let found = found.unwrap_or_else(|error| panic!("{error}\n{written}"));
    files_are_the_drivers_and_nodes_the_hosts(&found, "/opt/chip");
}

#[test]
fn a_root_that_is_missing_is_named() {
    let host = RecordedHost::parse(HOST).unwrap();
    let class = class(CLASS, "driver_root = '/opt/other'");
    let error = discover::look_up_class(&class, (&BTreeSet::new()).into(), &host);
    assert_eq!(
        error.unwrap_err().to_string(),
        "class chip: driver_root /opt/other cannot be opened: entity not found"
    );
}
