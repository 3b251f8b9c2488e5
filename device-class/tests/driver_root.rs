//! A driver that keeps its files in a root of its own, as one that runs in a
//! container does: files come from there, nodes from the host.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::discover::{self, DriverRoot, Presence};
use device_class::host::RecordedHost;
use device_class::name::ClassName;

#[test]
fn files_are_the_drivers_and_nodes_the_hosts() {
    let text = r#"
        version = 1
        resource = "example.com/chip"
        request = { env = "CHIPS" }
        discover = [{ path = "/dev/chip{index:number}" }]
        device = { id = "chip-{index}", nodes = ["/dev/chip{index}"] }
        edits = [{
          nodes = ["/dev/chipctl"],
          libraries = ["libchip.so.1"],
          binaries = ["/usr/bin/chip-info"],
          files = [{ each = "/lib/firmware/chip/{blob}", path = "/lib/firmware/chip/{blob}" }],
          directories = ["/usr/share/chip"],
        }]
    "#;
    let name = ClassName::try_from("chip".to_owned()).unwrap();
    let class = DeviceClass::parse(name, Path::new("chip.toml"), text).unwrap();
    let host = "char /dev/chip0 240:0\nchar /dev/chipctl 240:255\n\
        file /usr/bin/chip-info\nlib libchip.so.1 /usr/lib/libchip.so.0.9\n";
    let host = RecordedHost::parse(host).unwrap();
    let driver = "link /lib usr/lib\nfile /usr/lib/libchip.so.2.0\n\
        link /usr/lib/libchip.so.1 libchip.so.2.0\nlib libchip.so.1 /lib/libchip.so.1\n\
        file /usr/bin/chip-info\nfile /usr/lib/firmware/chip/a.bin\ndir /usr/share/chip\n";
    let driver = RecordedHost::parse(driver).unwrap();
    let root = DriverRoot {
        view: &driver,
        path: Path::new("/run/chip/driver"),
    };
    let inventory = discover::devices(&class, &host);
    let attributes = &inventory.host_attributes;
    let edits = discover::edits(&class, &[].into(), attributes, &host, root).unwrap();

    assert!(matches!(edits.nodes[0].number, Presence::Found(_)));
    let in_root = |path: &str| Presence::Found(PathBuf::from(format!("/run/chip/driver{path}")));
    assert_eq!(edits.libraries[0].file, in_root("/usr/lib/libchip.so.2.0"));
    assert_eq!(edits.files[0].file, in_root("/usr/bin/chip-info"));
    assert_eq!(edits.files[0].container, Path::new("/usr/bin/chip-info"));
    assert_eq!(edits.files[1].file, in_root("/usr/lib/firmware/chip/a.bin"));
    assert_eq!(
        edits.files[1].container,
        Path::new("/lib/firmware/chip/a.bin")
    );
    assert_eq!(edits.directories[0].directory, in_root("/usr/share/chip"));
}
