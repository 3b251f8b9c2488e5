//! Tests of the Events of the node, by which people see devices fail and recover.

use std::fs;

use serde_json::{Value, json};

use crate::node::{NPUS, Node, wait};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// Returns the reasons and notes of the Events, in the order in which they were published.
fn events(node: &Node) -> Vec<(String, String)> {
    let mut events = node.server.list(EVENTS);
    events.sort_by_key(|event| event["eventTime"].to_string());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    events
        .iter()
        .map(|event| (text(&event["reason"]), text(&event["note"])))
        .collect()
}

#[tokio::test]
async fn devices_that_fail_recover_and_go_are_events_of_the_node() {
    let mut node = Node::new(NPUS, 3).await;
    node.device(0, "hot");
    node.start().await;
    let unhealthy = |number: usize| {
        let note = format!(
            "device npu-{number} of npu is unhealthy: /sys/npu/npu{number}/state is `hot`, not `ok`"
        );
        ("DeviceUnhealthy".to_owned(), note)
    };
    let mut expected = vec![unhealthy(0)];
    wait("the first one", || events(&node) == expected).await;

    // Two devices fail at once: each has its own Event.
    node.device(1, "hot");
    node.device(2, "hot");
    expected.extend([unhealthy(1), unhealthy(2)]);
    wait("both", || events(&node) == expected).await;

    node.device(1, "ok");
    let note = "device npu-1 of npu is healthy again".to_owned();
    expected.push(("DeviceHealthy".to_owned(), note));
    wait("it recovers", || events(&node) == expected).await;

    fs::remove_dir_all(node.path("host/sys/npu/npu2")).unwrap();
    let note = "device npu-2 of npu is no longer on the node".to_owned();
    expected.push(("DeviceRemoved".to_owned(), note));
    wait("it goes", || events(&node) == expected).await;

    for event in node.server.list(EVENTS) {
        let regarding =
            json!({"apiVersion": "v1", "kind": "Node", "name": "worker", "uid": "worker"});
        assert_eq!(event["regarding"], regarding);
        assert_eq!(event["reportingController"], "boathook.dev");
        let kind = if event["reason"] == "DeviceHealthy" {
            "Normal"
        } else {
            "Warning"
        };
        assert_eq!(event["type"], kind);
    }
}
