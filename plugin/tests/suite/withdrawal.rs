//! The server of a resource that is withdrawn.

use harness::kubelet::Event;
use serde_json::json;

use crate::listeners::Listeners;
use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};
use crate::pages;

#[test]
fn a_withdrawn_resource_is_not_offered_even_if_a_client_does_not_read() {
    // So many that their list is longer than a narrow window.
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
    // The server sends the rest of the list to its last client, then ends.
    let tasks = || pages::metric(&address, "boathook_tasks");
    let held = tasks();
    drop(deaf);
    wait_until("the server has ended", || tasks() < held);
}

/// A record of `boathook-dra`, whose claims outlive the setting that gave a class to it.
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
    node.write("kubelet/plugins/boathook.dev/claims/u-2.json", "{");
    let kubelet = node.kubelet();
    node.start_plugin();
    // Of the next list that the plugin sends.
    let unhealthy = || -> Vec<String> {
        let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
        let ill = devices.into_iter().filter(|one| one.health != "Healthy");
        ill.map(|one| one.id).collect()
    };
    assert_eq!(unhealthy(), ["npu-0"]);
    node.wait_log("u-2.json: its devices may be offered twice");
    node.remove(record);
    assert_eq!(unhealthy(), [""; 0]);
}
