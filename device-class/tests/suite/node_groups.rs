//! Groups of nodes by name, which are looked up in the host's /etc/group.

use std::path::Path;

use device_class::config::Config;
use device_class::discover::{self, NodeInjectionMethod};
use device_class::host::{HostRecorder, RecordedHost};
use device_class::{DeviceClass, HostView};

use crate::{parse, rows};

const GROUPS: &str = "file /etc/group\n| root:x:0:\n| dialout:x:20:alice,bob\n| video:x:44:\n";
const NODES: &str = "char /dev/chip0 240:0\nfile /proc/devices\n| Character devices:\n| 240 chip\n";

/// A class whose device has a node with these keys.
fn class(keys: &str) -> Result<DeviceClass, String> {
    let text = format!(
        "version = 1\nresource = \"example.com/chip\"\nrequest = {{ env = \"CHIPS\" }}\n\
         discover = [{{ path = \"/dev/chip{{index:number}}\" }}]\n\
         device = {{ id = \"chip-{{index}}\", nodes = [{{ {keys} }}] }}\n"
    );
    parse("chip", &text)
}

/// Returns the number of the group of the device's node, or the reason why the node cannot be used.
fn group(class: &DeviceClass, host: &dyn HostView) -> String {
    let found = discover::find_devices(class, host);
    let [device] = &found.devices[..] else {
        panic!("{:?}", found.warnings);
    };
    if let Some(reason) = device.nodes[0].number.unusable_reason() {
        assert!(!device.health.is_healthy());
        return reason.to_owned();
    }
    match &device.nodes[0].form {
        NodeInjectionMethod::BindMount => "bound".to_owned(),
        NodeInjectionMethod::NodeCopy(own) => own.gid.to_string(),
        NodeInjectionMethod::CreatedNode(made) => made.permissions.gid.to_string(),
    }
}

const MADE: &str = "path = \"/dev/more{index}\", driver = \"chip\"";

#[test]
fn a_name_is_looked_up_on_the_host() {
    for [keys, groups, expected] in rows(
        r#"
path = "/dev/chip{index}" | yes | bound
path = "/dev/chip{index}", gid = 7 | no | 7
path = "/dev/chip{index}", mode = "0600" | no | 0
path = "/dev/chip{index}", group = "dialout" | yes | 20
path = "/dev/chip{index}", group = "alice" | yes | /dev/chip0: its group `alice` is not in the host's /etc/group
path = "/dev/chip{index}", group = "dialout" | no | /dev/chip0: its group `dialout` cannot be looked up, because the host's /etc/group is not here
path = "/dev/nothing{index}", group = "alice", optional = true | yes | bound
MADE, make = { minor = "0", group = "video" } | yes | 44
MADE, make = { minor = "0" }, group = "video" | yes | 44
MADE, make = { minor = "0", group = "video" }, group = "alice" | yes | 44
MADE, make = { minor = "0", gid = 9 }, group = "alice" | yes | 9
MADE, make = { minor = "0", group = "alice" } | yes | /dev/more0: its group `alice` is not in the host's
"#,
    ) {
        let text = if groups == "yes" { GROUPS } else { "" };
        let host = RecordedHost::parse(&format!("{NODES}{text}")).unwrap();
        let class = class(&keys.replace("MADE", MADE)).unwrap();
        let found = group(&class, &host);
        assert!(found.starts_with(&expected), "{keys}: {found}");
    }
}

#[test]
fn config_toml_replaces_the_group_by_a_name_or_a_number() {
    let host = RecordedHost::parse(&format!("{NODES}{GROUPS}")).unwrap();
    for [keys, config, expected] in rows(
        r#"
gid = 7 | node_group = "video" | 44
group = "dialout" | node_gid = 5 | 5
group = "dialout" | node_group = "video" | 44
group = "dialout" | node_mode = "0600" | 20
mode = "0600" | node_group = "no-such-group" | /dev/chip0: its group `no-such-group` is not
"#,
    ) {
        let text = format!("[class.chip]\n{config}\n");
        let config = Config::parse(Path::new("config.toml"), &text).unwrap();
        let class = class(&format!("path = \"/dev/chip{{index}}\", {keys}")).unwrap();
        let class = config.with_settings(class, Path::new("chip.toml")).unwrap();
        let found = group(&class, &host);
        assert!(found.starts_with(&expected), "{keys}: {found}");
    }
}

#[test]
fn a_node_has_one_group() {
    let two = "path = \"/dev/chip{index}\", gid = 5, group = \"dialout\"";
    let name = "path = \"/dev/chip{index}\", gid = \"dialout\"";
    let character = "path = \"/dev/chip{index}\", group = \"a b\"";
    for (keys, expected) in [
        (
            two,
            "chip.toml:5: a node has `gid`, the number of its group, or `group`, its name",
        ),
        (
            name,
            "chip.toml:5: gid: must be the number of a group (for a name use `group`",
        ),
        (
            character,
            "chip.toml:5: group: group `a b` may not have the character ' '",
        ),
    ] {
        let error = class(keys).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
    let config = "[class.chip]\nnode_gid = 5\nnode_group = \"dialout\"\n";
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let class = class("path = \"/dev/chip{index}\"").unwrap();
    let error = config.with_settings(class, Path::new("chip.toml"));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("`node_gid` and `node_group` both set the group"),
        "{error}"
    );
}

/// The members of groups are users' names.
#[test]
fn only_the_line_of_the_group_is_recorded() {
    let host = RecordedHost::parse(&format!("{NODES}{GROUPS}")).unwrap();
    let class = class("path = \"/dev/chip{index}\", group = \"dialout\"").unwrap();
    let recording = HostRecorder::new(&host);
    assert_eq!(group(&class, &recording), "20");
    let recorded = recording.to_string();
    assert!(
        recorded.contains("file /etc/group\n| dialout:x:20:\n"),
        "{recorded}"
    );
    assert!(
        !recorded.contains("alice") && !recorded.contains("video"),
        "{recorded}"
    );
    let again = RecordedHost::parse(&recorded).unwrap();
    assert_eq!(group(&class, &again), "20");
    assert!(class.spec.list_read_paths().contains("/etc/group"));
}
