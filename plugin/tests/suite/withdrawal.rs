//! Tests of the server of a resource that is withdrawn.

use std::fs;

use harness::kubelet::Event;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::listeners::Listeners;
use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};
use crate::pages;

#[test]
fn a_withdrawn_resource_is_not_offered_even_if_a_client_does_not_read() {
    // The class has so many devices that their list is longer than the client's window of 64
    // KiB.
    let many = format!("{NPUS}sharing = {{ replicas = 400 }}\n");
    let mut node = Node::new(&[("dummy-npu", &many)])
        .without_rescans()
        .with_arguments(&pages::SERVE);
    let kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let deaf = Listeners::open_narrow(&node.socket(NPU), 1);

    node.remove("classes/dummy-npu.toml");
    wait_until("the socket is gone", || !node.socket(NPU).exists());
    let broken = |event: &Event| matches!(event, Event::StreamBroken { .. });
    kubelet.wait(PATIENCE, broken).unwrap();
    // The server ends only after its last client has received the rest of the list or is gone.
    let tasks = || pages::metric(&address, "boathook_tasks");
    let held = tasks();
    drop(deaf);
    wait_until("the server has ended", || tasks() < held);
}

/// A claim of `boathook-dra` may still have a device after the configuration has moved the
/// class to the plugin. The plugin reads the claim records for that reason.
#[test]
fn what_a_claim_has_is_not_offered() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let device = |id: &str, admin: bool| {
        json!({"request": "r", "pool": "worker/dummy-npu", "device": "npu", "class": "dummy-npu",
            "id": id, "admin": admin})
    };
    let claim = json!({"version": 1, "uid": "u-1", "namespace": "n", "name": "a",
        "devices": [device("npu-0", false), device("npu-1", true)]});
    let record = "kubelet/plugins/boathook.dev/claims/u-1.json";
    node.write(record, &claim.to_string());
    let kubelet = node.kubelet();
    node.start_plugin();
    // Returns the ids of the unhealthy devices in the next list that the plugin sends.
    let unhealthy = || -> Vec<String> {
        let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
        let ill = devices.into_iter().filter(|one| one.health != "Healthy");
        ill.map(|one| one.id).collect()
    };
    assert_eq!(unhealthy(), ["npu-0"]);
    assert_eq!(
        listed(&node),
        ["npu-0: a resource claim still has it by boathook-dra"]
    );
    node.remove(record);
    assert_eq!(unhealthy(), [""; 0]);
    assert_eq!(listed(&node), [""; 0]);
}

/// Returns the unhealthy devices of `boathook-plugin list` with their reasons.
fn listed(node: &Node) -> Vec<String> {
    let listed: Value = serde_json::from_slice(&node.list(&["--json"]).stdout).unwrap();
    let ill = listed["devices"].as_array().unwrap().iter();
    let ill = ill.filter(|one| one["healthy"] == false);
    ill.map(|one| {
        let [id, reason] = ["id", "reason"].map(|key| one[key].as_str().unwrap());
        format!("{id}: {reason}")
    })
    .collect()
}

#[test]
fn what_a_claim_may_have_is_not_offered() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let record = "kubelet/plugins/boathook.dev/claims/u-2.json";
    let making = json!({"version": 1, "uid": "u-2", "namespace": "n", "name": "a", "devices": [],
        "making": [{"pool": "p", "device": "npu-half-0", "class": "dummy-npu"}]});
    node.write(record, &making.to_string());
    let all = listed(&node);
    assert!(all.len() > 1, "{all:?}");
    assert!(all[0].ends_with("makes a part of a device of its class for a resource claim"));
    node.write(record, "{");
    let kubelet = node.kubelet();
    node.start_plugin();
    let healthy = || -> usize {
        let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
        devices.iter().filter(|one| one.health == "Healthy").count()
    };
    assert_eq!(healthy(), 0);
    node.wait_log("u-2.json: no device is offered, since a claim may have it");
    let unreadable = listed(&node);
    assert_eq!(unreadable.len(), all.len());
    assert!(
        unreadable[0].ends_with("claims/u-2.json is unreadable"),
        "{unreadable:?}"
    );
    let problems = String::from_utf8(node.list(&[]).stderr).unwrap();
    assert!(
        problems.contains("u-2.json: no device is offered"),
        "{problems}"
    );
    node.remove(record);
    assert_eq!(healthy(), all.len());
}

const POD: &str = "0f3f3a0e-5f0e-4a53-9f55-3c0a2f3f7a11";

/// Writes a kubelet checkpoint in which the pod has a device, and the pod's cgroup.
fn record_device(node: &Node, resource: &str, id: &str) {
    let entry = json!({"PodUID": POD, "ContainerName": "c", "ResourceName": resource,
        "DeviceIDs": {"-1": [id]}});
    let checkpoint = json!({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1});
    let path = "kubelet/device-plugins/kubelet_internal_checkpoint";
    node.write(path, &checkpoint.to_string());
    for pod in [POD, "11111111-5f0e-4a53-9f55-3c0a2f3f7a11"] {
        let cgroup = format!("host/sys/fs/cgroup/kubepods/pod{pod}/container/cgroup.events");
        node.write(&cgroup, "populated 1\n");
    }
}

/// The number of replicas has changed while the pod runs. The kubelet takes the new ids for other
/// devices.
#[test]
fn what_a_pod_has_under_an_earlier_id_is_not_offered() {
    let shared = format!("{NPUS}sharing = {{ replicas = 2 }}\n");
    for (class, recorded_id, withheld_ids) in [
        (&*shared, "npu-0", &["npu-0::0", "npu-0::1"][..]),
        (&shared, "npu-0::5", &["npu-0::0", "npu-0::1"]),
        (NPUS, "npu-0::1", &["npu-0"]),
        (&shared, "npu-0::1", &[]),
        (NPUS, "npu-0", &[]),
    ] {
        let mut node = Node::new(&[("dummy-npu", class)]);
        let kubelet = node.kubelet();
        record_device(&node, NPU, recorded_id);
        let reasons = listed(&node);
        let expected = withheld_ids
            .iter()
            .map(|id| format!("{id}: the pod {POD} still has it as {recorded_id} of {NPU}: "));
        assert_eq!(reasons.len(), withheld_ids.len(), "{reasons:?}");
        for (reason, expected) in reasons.iter().zip(expected) {
            assert!(reason.starts_with(&expected), "{reason}");
        }
        node.start_plugin();
        let unhealthy = || -> Vec<String> {
            let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
            let ill = devices.into_iter().filter(|one| one.health != "Healthy");
            ill.map(|one| one.id).collect()
        };
        assert_eq!(unhealthy(), withheld_ids, "{recorded_id}");
        if withheld_ids.is_empty() {
            continue;
        }
        // The pod ends. The kubelet keeps it in the checkpoint until its next allocation.
        fs::remove_dir_all(node.path(&format!("host/sys/fs/cgroup/kubepods/pod{POD}"))).unwrap();
        node.signal(Signal::SIGHUP);
        assert_eq!(unhealthy(), [""; 0], "{recorded_id}");
    }
}

/// The class has got another resource. A short id can belong to a device of another plugin.
#[test]
fn what_a_pod_has_of_an_earlier_resource_is_not_offered() {
    let unique = NPUS.replace("npu-{index}", "0000:3b:00.{index}");
    for (class, resource, id, count) in [
        (&*unique, "old.example/npu", "0000:3b:00.0", 1),
        (NPUS, "old.example/npu", "npu-0", 0),
    ] {
        let node = Node::new(&[("dummy-npu", class)]);
        record_device(&node, resource, id);
        assert_eq!(listed(&node).len(), count, "{id} of {resource}");
    }
}

/// A claim has the device by a class whose place this one has taken.
#[test]
fn what_a_claim_has_by_another_class_is_not_offered() {
    let unique = NPUS.replace("npu-{index}", "0000:3b:00.{index}");
    for (class, id, count) in [(&*unique, "0000:3b:00.0", 1), (NPUS, "npu-0", 0)] {
        let node = Node::new(&[("dummy-npu", class)]);
        let claim = json!({"version": 1, "uid": "u-1", "namespace": "n", "name": "a",
            "devices": [{"request": "r", "pool": "worker/npu-parts", "device": "npu",
                "class": "npu-parts", "id": id, "admin": false}]});
        node.write(
            "kubelet/plugins/boathook.dev/claims/u-1.json",
            &claim.to_string(),
        );
        assert_eq!(listed(&node).len(), count, "{id}");
    }
}
