//! Tests of what the pods of all programs of the chart have.

use std::collections::BTreeSet;

use harness::manifests::chart;
use serde_json::{Value, json};

use crate::manifest::{list, name, pod, text};

/// Values with which the chart has a pod of each of its programs.
fn every_program() -> Value {
    let client = json!({"enabled": true, "allowFrom": ["10.0.0.4/32"]});
    json!({
        "follow": {"enabled": true}, "tests": {"resources": {"a.com/b": 1}},
        "classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]},
        "scheduler": client, "webhook": client,
    })
}

/// Returns the pods by the names of their objects.
fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    let mut pods = Vec::new();
    for object in objects {
        match text(&object["kind"]) {
            "DaemonSet" | "Deployment" => pods.push((name(object), pod(object))),
            "Pod" => pods.push((name(object), &object["spec"])),
            _ => {}
        }
    }
    pods
}

/// The account of a cluster may have no secrets of its own.
#[test]
fn every_pod_has_the_secrets_of_the_registry() {
    for account in [
        json!({"create": true}),
        json!({"create": false, "name": "existing"}),
    ] {
        let mut values = every_program();
        values["serviceAccount"] = account;
        values["image"] = json!({"pullSecrets": ["one", "two"]});
        let Some(objects) = chart(&values).unwrap() else {
            return;
        };
        let mut names = BTreeSet::new();
        for (name, pod) in pods(&objects) {
            let wanted = json!([{"name": "one"}, {"name": "two"}]);
            assert_eq!(pod["imagePullSecrets"], wanted, "{name}");
            names.insert(name);
        }
        let wanted = [
            "boathook",
            "boathook-dra",
            "boathook-follow",
            "boathook-scheduler",
            "boathook-test",
            "boathook-webhook",
        ];
        assert_eq!(names, wanted.into());
    }
}

/// The images are built for two processors.
#[test]
fn every_pod_is_on_a_processor_of_its_image() {
    let Some(objects) = chart(&every_program()).unwrap() else {
        return;
    };
    for (name, pod) in pods(&objects) {
        let node = &pod["affinity"]["nodeAffinity"];
        let terms = &node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let wanted = json!([{"matchExpressions": [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
        ]}]);
        assert_eq!(*terms, wanted, "{name}");
    }
}

/// The plugin's pods run on the nodes that have devices. The scheduler and the webhook need none, so
/// the values that choose the nodes of the plugin do not apply to them.
#[test]
fn scheduler_and_webhook_have_nodes_of_their_own() {
    let toleration = json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"});
    for program in ["scheduler", "webhook"] {
        let mut values = every_program();
        values["nodeSelector"] = json!({"pool": "devices"});
        values[program]["nodeSelector"] = json!({"pool": "system"});
        values[program]["tolerations"] = json!([toleration]);
        let Some(objects) = chart(&values).unwrap() else {
            return;
        };
        for (name, pod) in pods(&objects) {
            let is_client = name == "boathook-scheduler" || name == "boathook-webhook";
            let is_chosen = name == format!("boathook-{program}");
            let pool = match (is_chosen, is_client) {
                (true, _) => json!("system"),
                (false, true) => Value::Null,
                (false, false) => json!("devices"),
            };
            assert_eq!(pod["nodeSelector"]["pool"], pool, "{name}");
            let is_tolerated = list(&pod["tolerations"]).any(|one| *one == toleration);
            assert_eq!(is_tolerated, is_chosen, "{name}");
        }
    }
}

/// The pods that have devices end before their files are removed, on one node after the other.
#[test]
fn an_uninstallation_replaces_pods_whatever_the_strategy_of_updates_is() {
    for strategy in [
        json!({}),
        json!({"type": "OnDelete"}),
        json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
        json!({"rollingUpdate": {"maxUnavailable": "50%"}}),
    ] {
        let mut values = every_program();
        values["updateStrategy"] = strategy;
        values["uninstall"] = json!(true);
        let Some(objects) = chart(&values).unwrap() else {
            return;
        };
        let mut sets = objects
            .iter()
            .filter(|object| object["kind"] == "DaemonSet");
        let update = &sets.next().unwrap()["spec"]["updateStrategy"];
        let wanted = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}});
        assert_eq!(*update, wanted, "{values}");
        assert_eq!(sets.next(), None);
    }
}
