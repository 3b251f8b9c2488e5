//! Properties of the device tree, whose strings end with a NUL byte, and links that lead to a node.

use std::path::Path;

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;

fn parse(text: &str) -> DeviceClass {
    let name = "chips".to_owned().try_into().unwrap();
    DeviceClass::parse(name, Path::new("chips.toml"), text).unwrap()
}

#[test]
fn properties_of_the_device_tree_are_read_as_strings() {
    let class = parse(
        "version = 1\nresource = 'example.com/chip'\nrequest = { env = 'CHIPS' }\n\
         [[discover]]\npath = '/sys/chips/{name}'\nattributes = [\n\
         { name = 'model', file = 'of_node/model' },\n\
         { path = '/sys/boards/{board}/compatible', equals = 'acme,npu2', default = 'none' },\n]\n\
         [device]\nid = '{name}-{model}-{board}'\nnodes = []\n\
         health = [{ file = 'of_node/status', equals = 'okay' }]\n",
    );
    let host = |status: &str| {
        let host = format!(
            "file /sys/chips/a/of_node/model\n| NPU\0\nfile /sys/chips/a/of_node/status\n| {status}\n\
             file /sys/boards/one/compatible\n| other,x\0other,y\0\n\
             file /sys/boards/two/compatible\n| acme,npu3\0acme,npu2\0\n"
        );
        RecordedHost::parse(&host).unwrap()
    };
    for (status, is_healthy) in [
        ("okay\0", true),
        ("okay", true),
        ("disabled\0", false),
        ("okay\0disabled\0", false),
    ] {
        let found = discover::find_devices(&class, &host(status));
        let [device] = &found.devices[..] else {
            panic!("{found:?}");
        };
        assert_eq!(device.id.as_str(), "a-NPU-two");
        assert_eq!(device.health.is_healthy(), is_healthy, "{status:?}");
    }
}

/// The line feed or the NUL byte at the end of a file is no part of what an expression is about.
#[test]
fn an_expression_may_require_the_end_of_the_text() {
    let class = parse(
        "version = 1\nresource = 'example.com/chip'\nrequest = { env = 'CHIPS' }\n\
         [[discover]]\npath = '/sys/chips/{name}'\nattributes = [\n\
         { name = 'model', file = 'model', regex = '^chip ([a-z]+)$', default = 'none' },\n]\n\
         [device]\nid = '{name}-{model}'\nnodes = []\n",
    );
    for (model, id) in [
        ("chip fast", "a-fast"),
        ("chip fast\0", "a-fast"),
        ("chip fast\n| more", "a-none"),
        ("chip fast2", "a-none"),
    ] {
        let host = format!("file /sys/chips/a/model\n| {model}\n");
        let found = discover::find_devices(&class, &RecordedHost::parse(&host).unwrap());
        assert_eq!(found.devices[0].id.as_str(), id, "{model:?}");
    }
}

/// docs/class-reference.md: only a symbolic link.
#[test]
fn a_node_is_no_link_to_itself() {
    let class = parse(
        "version = 1\nresource = 'example.com/chip'\nrequest = { env = 'CHIPS' }\n\
         [[discover]]\npath = '/sys/class/tty/{tty}'\n\
         attributes = [{ path = '/dev/{link}', leads_to = '/dev/{tty}', default = 'none' }]\n\
         [device]\nid = 'tty-{link}'\nnodes = ['/dev/{tty}']\n",
    );
    let text = "dir /sys/class/tty/ttyACM1\nchar /dev/ttyACM1 166:1\n";
    for (more, id) in [
        ("link /dev/ublox_rtk ttyACM1\n", "tty-ublox_rtk"),
        ("", "tty-none"),
    ] {
        let host = RecordedHost::parse(&(text.to_owned() + more)).unwrap();
        let found = discover::find_devices(&class, &host).devices;
        let ids: Vec<&str> = found.iter().map(|device| device.id.as_str()).collect();
        assert_eq!(ids, [id]);
    }
}
