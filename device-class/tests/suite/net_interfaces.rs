//! Network interfaces of devices.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use device_class::config::Config;
use device_class::discover::{NetInterface, find_devices};
use device_class::host::{RealHost, RecordedHost};

use crate::shipped::root;
use crate::{parse, rows};

const HOST: &str = "
file /sys/bus/usb/devices/1-1/net/can0/ifindex
| 7
dir /sys/bus/usb/devices/1-1/net/can1
dir /sys/bus/usb/devices/1-2
dir /sys/bus/usb/devices/1-3/net/0123456789abcdef
";

/// Returns a class of USB devices.
fn class(top: &str, device: &str) -> Result<device_class::DeviceClass, String> {
    let text = format!(
        "version = 1\n{top}\nresource = 'example.com/bus'\nrequest = {{ env = 'BUS' }}\n\
         discover = [{{ path = '/sys/bus/usb/devices/{{port}}' }}]\n\
         [device]\nid = 'bus-{{port}}'\n{device}\n"
    );
    parse("bus", &text)
}

#[test]
fn a_device_has_the_interfaces_below_its_place_on_the_bus() {
    let netdev = "netdev = { path = '/sys/bus/usb/devices/{port}/net/can{n:number}', name = \
                  'bus{n}' }";
    let host = RecordedHost::parse(HOST.trim_start()).unwrap();
    let found = find_devices(&class("", netdev).unwrap(), &host);
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    let interfaces = |index: usize| found.devices[index].net_interfaces.clone().unwrap();
    let moved = |name: &str, name_in_container: &str, index| NetInterface {
        name: name.to_owned(),
        name_in_container: name_in_container.to_owned(),
        index,
    };
    assert_eq!(
        interfaces(0).host_interfaces,
        [moved("can0", "bus0", Some(7)), moved("can1", "bus1", None)]
    );
    assert!(interfaces(1).host_interfaces.is_empty());
    // A container has the interface of this device: it is a device nevertheless.
    assert!(
        found
            .devices
            .iter()
            .all(|device| device.health.is_healthy())
    );
    let pattern = interfaces(1).search.pattern();
    assert_eq!(pattern, "/sys/bus/usb/devices/1-2/net/can{n:number}");
}

#[test]
fn a_name_that_the_kernel_does_not_accept_leaves_the_device_out() {
    let netdev = "netdev = '/sys/bus/usb/devices/{port}/net/*'";
    let host = RecordedHost::parse(HOST.trim_start()).unwrap();
    let found = find_devices(&class("", netdev).unwrap(), &host);
    let ids: Vec<_> = found.devices.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["bus-1-1", "bus-1-2"]);
    let warning = "`0123456789abcdef` is no name that a network interface can be moved by";
    assert!(found.warnings[0].contains(warning), "{:?}", found.warnings);
}

/// A container with CAP_NET_ADMIN can give its interface any bytes as a name, with which the
/// interface returns to the host.
#[test]
fn an_interface_whose_name_is_not_utf_8_is_named() {
    let root = tempfile::tempdir().unwrap();
    let devices_on_bus = root.path().join("sys/bus/usb/devices");
    let name = OsStr::from_bytes(b"dm\xff");
    fs::create_dir_all(devices_on_bus.join("1-1/net").join(name)).unwrap();
    fs::create_dir_all(devices_on_bus.join("1-2/net/can0")).unwrap();
    let netdev = "netdev = '/sys/bus/usb/devices/{port}/net/*'";
    let host = RealHost::open(root.path()).unwrap();
    let found = find_devices(&class("", netdev).unwrap(), &host);
    let ids: Vec<_> = found.devices.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["bus-1-2"]);
    let warning = "`dm\u{fffd}` is no name that a network interface can be moved by";
    assert!(found.warnings[0].contains(warning), "{:?}", found.warnings);
}

/// A container with CAP_NET_ADMIN can rename the interface of its adapter to that of another one.
#[test]
fn a_can_adapter_is_not_requested_by_the_name_of_its_interface() {
    let class = fs::read_to_string(root().join("classes/can.toml")).unwrap();
    let class = parse("can", &class).unwrap();
    let host = fs::read_to_string(root().join("testdata/can/host.txt")).unwrap();
    let found = find_devices(&class, &RecordedHost::parse(&host).unwrap());
    assert!(!found.devices.is_empty());
    let names = found.devices.iter().flat_map(|device| {
        let aliases = device.aliases.iter().map(|alias| alias.as_str());
        aliases.chain([device.id.as_str()])
    });
    let of_interfaces: Vec<_> = names.filter(|name| name.starts_with("can")).collect();
    assert!(
        of_interfaces.iter().all(|name| name.starts_with("can-")),
        "{of_interfaces:?}"
    );
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let netdev = "netdev = '/sys/bus/usb/devices/{port}/net/*'";
    for (top, device, error) in [
        (
            "follow = true",
            netdev,
            "does not go with `follow = true`: a network interface is moved when a container starts",
        ),
        (
            "sharing = { replicas = 2 }",
            netdev,
            "does not go with [sharing]: a network interface is in one container at a time",
        ),
        (
            "",
            "netdev = { path = '/sys/bus/usb/devices/{port}/net/*', name = 'can{n}' }",
            "`can{n}` uses the attribute `n`",
        ),
        ("", "netdev = 'net/*'", "must begin with a slash"),
    ] {
        let refused = class(top, device).unwrap_err();
        assert!(refused.contains(error), "{refused}");
    }
}

/// Without this the second container would be refused when it starts.
#[test]
fn config_toml_cannot_share_an_interface() {
    for [config, error] in rows(
        r#"
replicas = 2 | with [class.bus] of config.toml: `replicas`: its devices are network interfaces (`netdev`)
replicas = { "example.com/bus" = 2 } | `replicas`: its devices are network interfaces (`netdev`)
follow = true | `netdev` in [device] does not go with `follow = true`
placement = "spread" | accepted
"#,
    ) {
        let class = class("", "netdev = '/sys/bus/usb/devices/{port}/net/*'").unwrap();
        let text = format!("[class.bus]\n{config}\n");
        let changed = Config::parse(Path::new("config.toml"), &text).unwrap();
        let loaded = changed.with_settings(class, Path::new("bus.toml"));
        let said = loaded.map_or_else(|error| error.to_string(), |_| "accepted".to_owned());
        assert!(said.contains(&error), "{config}: {said}");
    }
}
