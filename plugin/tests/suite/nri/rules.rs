//! Device rules in the spec, where the engine keeps them.

use harness::nri::{Created, FakeEngine, Plugin};
use harness::privilege::missing_for_root;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nri_api::{Container, ContainerAdjustment, CreateContainerRequest, CreateContainerResponse};
use prost::Message;

use super::{HOOK, container, pod};
use crate::node::{Node, wait_until};
use crate::pages::{SERVE, address, get};

/// Chips with a control node, shared by two.
const CHIPS: &str = r#"
version = 1
resource = "chips.example/chip"
request = { env = "CHIP_VISIBLE_DEVICES" }
discover = [{ path = "/dev/chip{index:number}" }]
edits = [{ nodes = ["/dev/chipctl", { path = "/dev/chipopt", optional = true }] }]
[sharing]
replicas = 2
[device]
id = "chip-{index}"
index = "{index}"
nodes = [{ path = "/dev/chip{index}", access = "rwm" }]
"#;

/// A node of a device that the plugin does not open.
fn make(node: &Node, name: &str, minor: u64) {
    let path = node.path(&format!("host/dev/{name}"));
    let _ = std::fs::remove_file(&path);
    mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR, makedev(240, minor)).unwrap();
}

/// A node with two chips, and an engine of this version that has the plugin. `None`:
/// nodes cannot be made here.
fn connected(test: &str, version: &str) -> Option<(Node, FakeEngine, Plugin)> {
    if let Some(reason) = missing_for_root() {
        skip::report(test, &reason);
        return None;
    }
    let mut node = Node::new(&[("chips", CHIPS)]);
    let socket = node.path("nri.sock");
    node = node
        .with_arguments(&["--nri", socket.to_str().unwrap()])
        .with_arguments(&SERVE)
        .without_rescans();
    for (name, minor) in [("chip0", 0), ("chip1", 1), ("chipctl", 255)] {
        make(&node, name, minor);
    }
    let engine = FakeEngine::listen(&socket, "containerd", version).unwrap();
    node.start_plugin();
    let plugin = engine.plugin().unwrap();
    let address = address(&node);
    let devices = "boathook_devices{resource=\"chips.example/chip\",health=\"healthy\"} 4";
    wait_until("the chips", || get(&address, "/metrics").contains(devices));
    Some((node, engine, plugin))
}

/// A container to which these ids were allocated.
fn allocated(ids: &str) -> Container {
    let key = "devices.boathook.dev/chips".to_owned();
    Container {
        annotations: [(key, ids.to_owned())].into(),
        ..container(&[&format!("CHIP_VISIBLE_DEVICES={ids}")])
    }
}

/// The rules in an adjustment, as in cgroup v1's files.
fn rules(adjust: ContainerAdjustment) -> Vec<String> {
    let resources = adjust.linux.unwrap_or_default().resources;
    let devices = resources.unwrap_or_default().devices.into_iter();
    let rules = devices.map(|rule| {
        assert!(rule.allow);
        let [major, minor] = [rule.major, rule.minor].map(|number| number.unwrap().value);
        format!("{} {major}:{minor} {}", rule.r#type, rule.access)
    });
    rules.collect()
}

/// What the engine puts into the spec.
fn added(plugin: &mut Plugin, asking: &Container) -> Vec<String> {
    match plugin.create(&pod(), asking, ContainerAdjustment::default()) {
        Created::Container(adjust) => {
            let hooks = adjust.hooks.clone().unwrap_or_default().prestart;
            assert_eq!(hooks[0].path, HOOK);
            rules(*adjust)
        }
        Created::Refused(reason) => panic!("{reason}"),
    }
}

#[test]
fn allocated_devices_have_their_rules_in_the_spec() {
    let Some((node, _engine, mut plugin)) = connected("NRI, device rules", "v2.2.0") else {
        return;
    };
    for (ids, wanted) in [
        ("chip-1::0", &["c 240:1 rwm", "c 240:255 rw"][..]),
        // Each rule once, regardless of the number of shares.
        (
            "chip-0::0,chip-0::1,chip-1::1",
            &["c 240:0 rwm", "c 240:255 rw", "c 240:1 rwm"],
        ),
        ("chip-9::0", &[]),
    ] {
        assert_eq!(added(&mut plugin, &allocated(ids)), wanted, "{ids}");
    }
    // An image's wish is no allocation: the hook decides what it gets.
    let image = container(&["CHIP_VISIBLE_DEVICES=all"]);
    assert_eq!(added(&mut plugin, &image), [] as [&str; 0]);
    // The number is another device's by now, and no event has told so.
    std::fs::remove_file(node.path("host/dev/chip1")).unwrap();
    let after = added(&mut plugin, &allocated("chip-1::0"));
    assert_eq!(after, ["c 240:255 rw"]);
}

/// Before NRI 0.10 they would be dropped silently, so that nobody would know.
#[test]
fn an_older_engine_is_sent_no_rules() {
    let Some((_node, _engine, mut plugin)) = connected("NRI, old rules", "v2.1.9") else {
        return;
    };
    let request = CreateContainerRequest {
        pod: Some(pod()),
        container: Some(allocated("chip-1::0")),
    };
    let answer = plugin.call("CreateContainer", &request.encode_to_vec());
    let answer = CreateContainerResponse::decode(answer.unwrap().as_slice()).unwrap();
    let adjust = answer.adjust.unwrap();
    assert!(adjust.hooks.is_some());
    assert_eq!(adjust.linux, None);
}
