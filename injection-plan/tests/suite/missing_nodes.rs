//! Nodes that a driver has not made yet, such as /dev/nvidia-uvm on a host without a
//! display before root has used CUDA.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::DeviceClass;
use device_class::device::{Access, DeviceKind, DeviceNumber, DeviceRule};
use device_class::discover::{
    self, CreatedNode, FoundNode, NodeInjectionMethod, NodePermissions, PathLookup,
};
use device_class::host::RecordedHost;
use injection_plan::request::Request;

use crate::planning::parse;

fn class(text: &str) -> DeviceClass {
    parse("x", text).unwrap()
}

/// A class whose control node has these keys.
fn with_node(keys: &str) -> String {
    format!(
        "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n\
         discover = [{{ count = 1 }}]\ndevice = {{ id = 'x-{{index}}' }}\n\
         [[edits]]\nnodes = [{{ path = '/dev/xctl', {keys} }}]\n"
    )
}

/// The control node, on a host with these drivers and nodes.
fn looked_up(keys: &str, devices: &str, nodes: &str) -> FoundNode {
    let class = class(&with_node(keys));
    let host = RecordedHost::parse(&format!("file /proc/devices\n{devices}{nodes}")).unwrap();
    let env = vec!["X=all".to_owned()];
    let request = Request::find(&class, &env.into(), |_| None)
        .unwrap()
        .unwrap();
    let found = discover::look_up_class(&class, request.edit_selection(), &host);
    found.unwrap().edits.nodes.remove(0)
}

fn character(major: u32, minor: u32) -> PathLookup<DeviceNumber> {
    PathLookup::Found(DeviceRule::new(DeviceKind::Character, major, minor, Access::READ).number)
}

const LOADED: &str = "| Character devices:\n|   1 mem\n| 195 x\n| 511 x-late\n|\n\
                      | Block devices:\n| 259 x-disk\n";
/// Names that are longer, and a block device of the name.
const OTHER: &str = "| Character devices:\n| 195 x\n| 511 x-late-2\n|\n\
                     | Block devices:\n| 259 x-late\n";

#[test]
fn a_node_is_required_while_its_driver_is_loaded() {
    let keys = "optional = true, driver = 'x-late', advice = 'make it'";
    let number = |devices, nodes| looked_up(keys, devices, nodes).number;
    assert_eq!(number(LOADED, "char /dev/xctl 511:0\n"), character(511, 0));
    assert_eq!(number(OTHER, ""), PathLookup::OptionalAbsent);
    let refused = "/dev/xctl does not exist, although its driver x-late is loaded; make it";
    assert_eq!(number(LOADED, ""), PathLookup::Unusable(refused.to_owned()));
}

#[test]
fn a_node_that_can_be_made_has_the_numbers_of_its_driver() {
    let made = |mode, gid| {
        NodeInjectionMethod::CreatedNode(CreatedNode {
            driver: "x-late".to_owned(),
            permissions: NodePermissions { mode, gid },
            advice: Some("make it".to_owned()),
            is_optional: false,
        })
    };
    for (keys, wanted) in [
        ("minor = '7'", made(0o660, 0)),
        ("minor = '7', mode = '0666', gid = 44", made(0o666, 44)),
    ] {
        let keys = format!("driver = 'x-late', advice = 'make it', make = {{ {keys} }}");
        let found = looked_up(&keys, LOADED, "");
        assert_eq!((found.number, found.form), (character(511, 7), wanted));
        // The host's node counts, whatever its number.
        let found = looked_up(&keys, LOADED, "char /dev/xctl 511:1\n");
        assert_eq!(
            (found.number, found.form),
            (character(511, 1), NodeInjectionMethod::BindMount)
        );
        // Something else is there.
        let found = looked_up(&keys, LOADED, "file /dev/xctl\n").number;
        let wanted = "/dev/xctl is a regular file, not a device node, although its driver x-late \
                      is loaded; make it";
        assert_eq!(found.unusable_reason(), Some(wanted));
        // The driver is not loaded.
        let found = looked_up(&keys, OTHER, "").number;
        assert_eq!(
            found.unusable_reason(),
            Some("/dev/xctl does not exist; make it")
        );
        let optional = format!("optional = true, {keys}");
        assert_eq!(
            looked_up(&optional, OTHER, "").number,
            PathLookup::OptionalAbsent
        );
    }
    let block = "driver = 'x-disk', block = true, make = { minor = '0' }";
    let number = looked_up(block, LOADED, "").number;
    let wanted = DeviceRule::new(DeviceKind::Block, 259, 0, Access::READ).number;
    assert_eq!(number, PathLookup::Found(wanted));
}

#[test]
fn numbers_that_no_device_can_have_are_refused() {
    let keys = "driver = 'x-late', make = { minor = '1048576' }";
    let class = class(&with_node(keys));
    let host = format!("file /proc/devices\n{LOADED}");
    let host = RecordedHost::parse(&host).unwrap();
    let found = discover::look_up_class(&class, (&BTreeSet::new()).into(), &host);
    let error = found.unwrap_err().to_string();
    assert!(
        error.contains("`1048576` is not the minor number"),
        "{error}"
    );
    let keys = "optional = true, driver = 'x-late', make = { minor = '0' }";
    let number = looked_up(keys, "| Character devices:\n| 4096 x-late\n", "").number;
    assert_eq!(number, PathLookup::OptionalAbsent);
}

#[test]
fn a_class_file_sets_both_driver_and_minor_number() {
    let refused = |text: &str| parse("x", text).unwrap_err();
    let text = with_node("make = { minor = '3' }");
    let error = refused(&text);
    assert!(error.contains("needs `driver`"), "{error}");
    let text = with_node("driver = 'x', make = { minor = '{index}' }");
    assert!(refused(&text).contains("put what belongs to one device into [device]"));
}

/// The test class is a newcomer's first one: its devices can be opened on any host.
#[test]
fn the_class_for_tests_has_a_node_for_each_device_on_a_fresh_host() {
    const CLASS: &str = include_str!("../../../device-class/classes/dummy-npu.toml");
    let all = |host: &str| {
        let host = RecordedHost::parse(host).unwrap();
        let class = class(CLASS);
        let request = Request::find(
            &class,
            &vec!["DUMMY_VISIBLE_DEVICES=all".to_owned()].into(),
            |_| None,
        );
        discover::look_up_class(&class, request.unwrap().unwrap().edit_selection(), &host)
            .unwrap()
            .inventory
            .devices
    };
    for (index, device) in all("char /dev/null 1:3\nchar /dev/dummy-npu5 10:183\n")
        .iter()
        .enumerate()
    {
        let node = &device.nodes[0];
        let number = if index == 5 {
            character(10, 183)
        } else {
            character(1, 3)
        };
        assert_eq!(
            (&node.number, &node.form),
            (&number, &NodeInjectionMethod::BindMount)
        );
        assert_eq!(
            node.container_path,
            Path::new(&format!("/dev/dummy-npu{index}"))
        );
        assert!(device.health.is_healthy());
    }
    assert_eq!(all("char /dev/null 1:3\n").len(), 64);
}
