//! Tests of the manifests by the schemas of Kubernetes' versions, from the oldest that the chart
//! supports to the newest that is known.

use harness::manifests::{chart, kustomized, repository, validate};
use serde_json::{Value, json};

/// The oldest version of Kubernetes that the chart supports.
const OLDEST: &str = "1.26";

/// Each row has values, and the oldest version that knows what the chart has with them. The values
/// say so, too.
fn rows() -> Vec<(&'static str, Value)> {
    let clients = json!({"enabled": true, "allowFrom": ["10.0.0.4/32"]});
    vec![
        (OLDEST, json!({})),
        (
            OLDEST,
            json!({"engine": "containerd", "hostPrograms": true, "plugin": {"hostService": true}}),
        ),
        (
            OLDEST,
            json!({
                "installDir": "/var/lib/boathook", "configDir": "/var/lib/c/boathook",
                "scheduler": clients, "openshift": {"enabled": true}, "nodeLabels": true,
                "tests": {"resources": {"nvidia.com/gpu": 1}},
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
                    ]},
                }},
                "commonAnnotations": {"a": "b"}, "podSecurityContext": {"fsGroup": 1},
                "monitoring": {"enabled": true, "podMonitor": true, "allowFrom": [
                    {"namespaceSelector": {"matchLabels": {"a": "b"}}},
                ]},
                "extraEnv": {"plugin": [{"name": "A", "value": "b"}]},
            }),
        ),
        (OLDEST, json!({"uninstall": true})),
        // `matchConditions`.
        ("1.27", json!({"webhook": clients})),
        // `appArmorProfile`.
        ("1.30", json!({"follow": {"enabled": true}})),
        // ValidatingAdmissionPolicy. The driver itself needs 1.34.
        ("1.30", json!({"dra": {"classes": ["dummy-npu"]}})),
    ]
}

#[test]
fn every_version_of_kubernetes_accepts_the_chart() {
    for (oldest, values) in rows() {
        let Some(objects) = chart(&values).unwrap() else {
            return;
        };
        let Some(result) = validate(&objects, oldest).unwrap() else {
            return;
        };
        assert_eq!(result, Ok(()), "{values}");
    }
}

#[test]
fn every_version_of_kubernetes_accepts_the_overlays() {
    for overlay in ["cdi", "containerd"] {
        let directory = repository("deploy/overlays").join(overlay);
        let Some(objects) = kustomized(&directory).unwrap() else {
            return;
        };
        let Some(result) = validate(&objects, OLDEST).unwrap() else {
            return;
        };
        assert_eq!(result, Ok(()), "{overlay}");
    }
}

/// The validation refuses what an API server would refuse, or leave out.
#[test]
fn a_property_that_a_version_does_not_know_is_found() {
    let Some(mut objects) = chart(&json!({})).unwrap() else {
        return;
    };
    let set = objects
        .iter_mut()
        .find(|object| object["kind"] == "DaemonSet");
    set.unwrap()["spec"]["updateStrategi"] = json!({});
    let Some(result) = validate(&objects, OLDEST).unwrap() else {
        return;
    };
    let problems = result.unwrap_err();
    let wanted = "Kubernetes 1.26: DaemonSet boathook: Additional properties are not allowed \
                  ('updateStrategi' was unexpected)";
    assert!(problems.contains(wanted), "{problems}");
}
