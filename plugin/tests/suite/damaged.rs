//! Tests with something else in the place of a file that the plugin reads or writes, such as a
//! directory. Only the class of that file is affected, and the plugin does not wait for it.

use std::fs;
use std::time::Instant;

use harness::damage::{self, Damage};
use harness::kubelet::FakeKubelet;

use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};

const THING: &str = "version = 1\nresource = 'example.com/thing'\nrequest = { env = 'THINGS' }\n\
    discover = [{ count = 1 }]\ndevice = { id = 'thing-{index}' }\n";
const THINGS: &str = "example.com/thing";

fn node() -> Node {
    Node::new(&[("dummy-npu", NPUS), ("thing", THING)])
}

/// Returns whether all devices of a resource are healthy in the first list.
fn are_healthy(kubelet: &FakeKubelet, resource: &str) -> bool {
    let devices = kubelet.wait_devices(PATIENCE, resource).unwrap();
    devices.iter().all(|device| device.health == "Healthy")
}

#[test]
fn a_specification_of_ours_concerns_its_kind_alone() {
    for damage in Damage::kinds() {
        let mut node = node();
        node.write("cdi/other.json", "{}");
        let file = node.path("cdi/boathook-dummy.com.pods.boathook.dev-npu.json");
        damage.put(&file).unwrap();
        let kubelet = node.kubelet();
        let start = Instant::now();
        node.start_plugin();
        assert!(are_healthy(&kubelet, THINGS), "{damage:?}");
        if damage == Damage::Directory {
            assert!(!are_healthy(&kubelet, NPU));
            node.wait_log("cdi/boathook-dummy.com.pods.boathook.dev-npu.json");
        } else {
            assert!(are_healthy(&kubelet, NPU), "{damage:?}");
            assert!(fs::symlink_metadata(&file).unwrap().is_file(), "{damage:?}");
        }
        assert!(damage.spares_victim(&file), "{damage:?}");
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}

#[test]
fn another_programs_specification_is_not_waited_for() {
    for damage in Damage::kinds() {
        let mut node = node();
        node.write("cdi/vendor.yaml", "kind: vendor.com/gpu\n");
        damage.put(&node.path("cdi/vendor.yaml")).unwrap();
        let kubelet = node.kubelet();
        let start = Instant::now();
        node.start_plugin();
        assert!(are_healthy(&kubelet, NPU), "{damage:?}");
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}

/// An engine refuses a device that two CDI specifications describe, in JSON or in any form of
/// YAML.
#[test]
fn a_conflict_in_any_form_of_yaml_is_noticed() {
    for text in [
        "kind: dummy.com.pods.boathook.dev/npu\n",
        "\"kind\": dummy.com.pods.boathook.dev/npu\n",
        "kind: dummy.com.pods.boathook.dev/npu # the vendor's\n",
        "{cdiVersion: 0.5.0, kind: dummy.com.pods.boathook.dev/npu}\n",
        "x: &k dummy.com.pods.boathook.dev/npu\nkind: *k\n",
        "kind:\n  dummy.com.pods.boathook.dev/npu\n",
        "kind: \"dummy.com.pods.boathook.dev\\u002fnpu\"\n",
    ] {
        let mut node = node();
        node.write("cdi/vendor.yaml", text);
        let kubelet = node.kubelet();
        node.start_plugin();
        assert!(are_healthy(&kubelet, THINGS), "{text}");
        assert!(!are_healthy(&kubelet, NPU), "{text}");
        node.wait_log("cdi/vendor.yaml describes devices of this kind");
        assert!(
            !node
                .path("cdi/boathook-dummy.com.pods.boathook.dev-npu.json")
                .exists(),
            "{text}"
        );
    }
    // A comment or an annotation that has the name of a kind does not describe devices of that
    // kind.
    let mut node = node();
    let text = "kind: vendor.com/gpu # not dummy.com/npu\nannotations: {x: dummy.com/npu}\n";
    node.write("cdi/vendor.yaml", text);
    let kubelet = node.kubelet();
    node.start_plugin();
    assert!(are_healthy(&kubelet, NPU));
}

/// The plugin names a claim record that it cannot read, because that claim may have any
/// device.
#[test]
fn a_claims_record_is_named() {
    for damage in Damage::kinds() {
        let mut node = node();
        let claim = r#"{"version": 1, "uid": "u-1", "namespace": "n", "name": "a", "devices": []}"#;
        let record = "kubelet/plugins/boathook.dev/claims/u-1.json";
        node.write(record, claim);
        let record = node.path(record);
        damage.put(&record).unwrap();
        let kubelet = node.kubelet();
        let start = Instant::now();
        node.start_plugin();
        assert!(!are_healthy(&kubelet, NPU), "{damage:?}");
        node.wait_log("claims/u-1.json: no device is offered, since a claim may have it");
        damage::remove(&record).unwrap();
        wait_until("the devices", || are_healthy(&kubelet, NPU));
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}

#[test]
fn a_class_file_and_the_index_are_not_waited_for() {
    for damage in Damage::kinds() {
        let mut node = node();
        damage.put(&node.path("classes/dummy-npu.toml")).unwrap();
        damage.put(&node.path("classes/.variables")).unwrap();
        let kubelet = node.kubelet();
        let start = Instant::now();
        node.start_plugin();
        assert!(are_healthy(&kubelet, THINGS), "{damage:?}");
        node.wait_log("classes/dummy-npu.toml");
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}
