//! Tests that the chart's objects, as Helm renders them, are equal to those of the
//! kustomizations.

use std::collections::BTreeMap;

use clap::Parser;
use cluster::scheduler::program::Cli;
use cluster::webhook::api::definitions;
use serde_json::{Value, json};

use super::{check, command, only, rendered};

/// Renders the chart's objects for one of the programs: all objects that have its name, and
/// the resource definitions. Returns `None` without Helm, and the test is skipped.
fn chart(values: &Value, program: &str) -> Option<Vec<Value>> {
    let mut objects = harness::manifests::chart(values).unwrap()?;
    objects.retain(|object| {
        object["metadata"]["labels"]["app.kubernetes.io/name"] == program
            || object["kind"] == "CustomResourceDefinition"
    });
    Some(objects)
}

/// Returns an object without the intended differences: the labels, the pull policy, and the
/// content of the configuration, from which kustomize derives a name.
fn comparable(object: &Value) -> Value {
    const DIFFERENT: [&str; 5] = [
        "labels",
        "app.kubernetes.io/instance",
        "checksum/config",
        "imagePullPolicy",
        "helm.sh/resource-policy",
    ];
    match object {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !DIFFERENT.contains(&key.as_str()))
            .map(|(key, value)| match key.as_str() {
                "configMap" => (key.clone(), "CONFIGURATION".into()),
                _ => (key.clone(), comparable(value)),
            })
            .filter(|(_, value)| *value != json!({}))
            .collect(),
        Value::Array(items) => items.iter().map(comparable).collect(),
        other => other.clone(),
    }
}

/// Returns the objects by kind and name. The name of the program and the namespace differ
/// between the chart and the kustomizations, and are replaced by `X`.
fn by_name(objects: &[Value], program: &str) -> BTreeMap<String, Value> {
    let text = Value::from(objects).to_string();
    let text = text.replace(program, "X").replace("boathook-system", "X");
    let objects: Vec<Value> = serde_json::from_str(&text).unwrap();
    let compared = objects.iter().filter(|object| {
        let kind = object["kind"].as_str().unwrap();
        kind != "Namespace" && kind != "ConfigMap"
    });
    let named = compared.map(|object| {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        (name, comparable(object))
    });
    named.collect()
}

#[test]
fn the_chart_has_the_objects_of_the_kustomizations() {
    for (program, path, values) in [
        (
            "boathook-scheduler",
            "scheduler/extender",
            json!({"scheduler": {"enabled": true, "allowFrom": ["192.0.2.1/32"]}}),
        ),
        (
            "boathook-webhook",
            "webhook/default",
            json!({"webhook": {"enabled": true, "allowFrom": ["192.0.2.1/32"]}}),
        ),
        (
            "boathook-webhook",
            "webhook/cert-manager",
            json!({"webhook": {"enabled": true, "certManager": true, "allowFrom": ["192.0.2.1/32"]}}),
        ),
    ] {
        let (Some(objects), Some(plain)) = (chart(&values, program), rendered(path)) else {
            return;
        };
        check(&objects);
        let (ours, theirs) = (by_name(&objects, program), by_name(&plain, program));
        assert!(ours.keys().eq(theirs.keys()), "{:?}", ours.keys());
        for (name, ours) in &ours {
            assert_eq!(ours, &theirs[name], "{path}: {name}");
        }
    }
}

#[test]
fn the_chart_has_neither_program_unless_it_is_enabled() {
    for program in ["boathook-scheduler", "boathook-webhook"] {
        let Some(objects) = chart(&json!({}), program) else {
            return;
        };
        assert_eq!(objects, Vec::<Value>::new());
    }
}

#[test]
fn the_definitions_outlive_the_release() {
    let values = json!({"webhook": {"enabled": true, "allowFrom": ["192.0.2.1/32"]}});
    let Some(objects) = chart(&values, "boathook-webhook") else {
        return;
    };
    for definition in definitions() {
        let name = definition.metadata.name.as_deref().unwrap();
        let mut objects = objects.iter();
        let object = objects.find(|object| object["metadata"]["name"] == name);
        let object = object.unwrap();
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/resource-policy"], "keep");
        let spec = serde_json::to_value(&definition.spec).unwrap();
        assert_eq!(object["spec"], spec);
    }
}

#[test]
fn the_values_of_the_programs_have_their_effect() {
    let config = "[[resource]]\nname = \"amd.com/gpu\"\nweight = 3\n";
    let digest = format!("sha256:{}", "0".repeat(64));
    let values = json!({
        "scheduler": {"enabled": true, "config": config, "clusterIP": "10.96.0.88", "replicas": 3,
            "allowFrom": ["10.0.0.0/24"], "resources": {"limits": {"memory": "1Gi"}}},
        "clusterImage": {"repository": "r.example/c", "digest": digest},
        "image": {"pullSecrets": ["one"], "pullPolicy": "Always"},
    });
    let Some(objects) = chart(&values, "boathook-scheduler") else {
        return;
    };
    let of_kind = |kind: &str| {
        let mut objects = objects.iter();
        objects.find(|object| object["kind"] == kind).unwrap()
    };
    assert_eq!(of_kind("ConfigMap")["data"]["scheduler.toml"], config);
    crate::extender::parse_config(config);
    assert_eq!(of_kind("Service")["spec"]["clusterIP"], "10.96.0.88");
    let policy = &of_kind("NetworkPolicy")["spec"]["ingress"][0];
    let from = json!([{"ipBlock": {"cidr": "10.0.0.0/24"}}]);
    assert_eq!(policy["from"], from);
    let deployment = of_kind("Deployment");
    assert_eq!(deployment["spec"]["replicas"], 3);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("r.example/c@{digest}"));
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
    let account = of_kind("ServiceAccount");
    assert_eq!(account["imagePullSecrets"], json!([{"name": "one"}]));
    // A change of the configuration restarts the pods, because they read the configuration
    // only when they start.
    let checksum = |objects: &[Value]| {
        let template = &only(objects, "Deployment")["spec"]["template"];
        template["metadata"]["annotations"]["checksum/config"].clone()
    };
    let values = json!({"scheduler": {"enabled": true, "allowFrom": ["10.0.0.0/24"]}});
    let plain = chart(&values, "boathook-scheduler").unwrap();
    assert_ne!(checksum(&objects), checksum(&plain));
    Cli::try_parse_from(command(only(&plain, "Deployment"), "scheduler")).unwrap();
    let configuration = &only(&plain, "ConfigMap")["data"]["scheduler.toml"];
    crate::extender::parse_config(configuration.as_str().unwrap());
}

#[test]
fn wrong_values_of_the_programs_are_refused() {
    let wrong = [
        json!({"scheduler": {"enable": true}}),
        json!({"scheduler": {"replicas": 1}}),
        json!({"scheduler": {"config": ""}}),
        // `allowFrom` is empty by default. A program that is enabled needs at least one network.
        json!({"scheduler": {"enabled": true}}),
        json!({"webhook": {"enabled": true}}),
        json!({"webhook": {"allowFrom": ["everybody"]}}),
        json!({"webhook": {"certManager": "yes"}}),
        json!({"clusterImage": {"digest": "sha256:1"}}),
    ];
    assert_eq!(harness::manifests::accepted(&wrong).unwrap(), None);
}

/// The notes of the chart name the values that make an attack easier.
#[test]
fn values_that_lower_protection_say_so() {
    let open = json!({"enabled": true, "allowFrom": ["0.0.0.0/0"]});
    let restart = json!({"engine": "k3s", "restartEngine": true});
    let tolerations = json!({"tolerations": [{"operator": "Exists"}]});
    let class = json!({"priorityClassName": "system-node-critical"});
    for (values, said) in [
        (json!({}), None),
        (json!({"hostPrograms": true}), Some("hostPrograms")),
        (restart, Some("restartEngine")),
        (tolerations, Some("tolerations")),
        (class, Some("priorityClassName")),
        (json!({"monitoring": {"enabled": true}}), Some("monitoring")),
        (json!({"webhook": open}), Some("webhook.allowFrom")),
        (json!({"scheduler": open}), Some("scheduler.allowFrom")),
    ] {
        let Some(output) = harness::manifests::helm(&values).unwrap() else {
            return;
        };
        let notes = String::from_utf8_lossy(&output.stderr);
        if !notes.contains("The namespace must allow privileged pods") {
            return skip::report("the chart's notes", "needs scripts/install-helm");
        }
        let lower: Vec<&str> = notes.split("Security note: ").skip(1).collect();
        let count = usize::from(said.is_some());
        assert_eq!(lower.len(), count, "{values}: {notes}");
        let mut lower = lower.iter();
        assert!(lower.all(|text| text.contains(said.unwrap())), "{notes}");
    }
}
