//! Tests of the manifests by the schemas of Kubernetes' versions, from the oldest that the chart
//! supports to the newest that is known.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use harness::manifests::{chart, documents, kustomized, repository, validate};
use serde_json::{Value, json};

use crate::manifest::manifests;
use crate::rendered::render_documents;

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
            json!({
                "engine": "containerd", "hostPrograms": true, "plugin": {"hostService": true},
                "monitoring": {"enabled": true},
            }),
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
        (
            "1.30",
            json!({"classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]}}),
        ),
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

/// Objects by the oldest version that knows what they have. One call of the script validates many.
type ByOldest = BTreeMap<&'static str, Vec<Value>>;

fn check(objects: &ByOldest) {
    for (oldest, objects) in objects {
        let Some(result) = validate(objects, oldest).unwrap() else {
            return;
        };
        assert_eq!(result, Ok(()), "{oldest}");
    }
}

/// The oldest version that knows what the kustomization has, if that is not the chart's oldest.
fn oldest_of(kustomization: &str) -> &'static str {
    match kustomization {
        // `matchConditions`.
        "webhook/default" | "webhook/cert-manager" => "1.27",
        // `appArmorProfile`, and ValidatingAdmissionPolicy.
        "components/follow" => "1.30",
        // ResourceClaims of `resource.k8s.io/v1`.
        "components/dra" | "components/dra-host-programs" => "1.34",
        _ => OLDEST,
    }
}

#[test]
fn every_version_of_kubernetes_accepts_the_kustomizations() {
    let mut objects = ByOldest::new();
    let mut count = 0;
    for kind in ["overlays", "uninstall", "webhook", "scheduler"] {
        for entry in fs::read_dir(repository("deploy").join(kind)).unwrap() {
            let directory = entry.unwrap().path();
            if !directory.join("kustomization.yaml").exists() {
                continue;
            }
            let name = directory.file_name().unwrap().to_str().unwrap();
            let oldest = oldest_of(&format!("{kind}/{name}"));
            let Some(rendered) = kustomized(&directory).unwrap() else {
                return;
            };
            objects.entry(oldest).or_default().extend(rendered);
            count += 1;
        }
    }
    assert!(count >= 14, "{count}");
    check(&objects);
}

#[test]
fn every_version_of_kubernetes_accepts_the_components() {
    let mut objects = ByOldest::new();
    for entry in fs::read_dir(repository("deploy/components")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // A component can need the objects of another one.
        let components = match &*name {
            // Each overlay for an engine has it already.
            "handler" => continue,
            "dra-host-programs" => "DEPLOY/components/dra, DEPLOY/components/dra-host-programs",
            "metrics-policy" => "DEPLOY/components/monitoring, DEPLOY/components/metrics-policy",
            name => &format!("DEPLOY/components/{name}"),
        };
        let more = format!("components: [{components}]\n");
        let Some(rendered) = render_documents("containerd", &more) else {
            return;
        };
        let oldest = oldest_of(&format!("components/{name}"));
        objects.entry(oldest).or_default().extend(rendered);
    }
    check(&objects);
}

#[test]
fn every_version_of_kubernetes_accepts_the_examples() {
    let files = manifests(&repository("deploy/examples")).into_iter();
    let read = |file| documents(&fs::read_to_string(file).unwrap()).unwrap();
    let examples: Vec<Value> = files.flat_map(read).collect();
    assert!(examples.len() > 30, "{}", examples.len());
    check(&ByOldest::from([(OLDEST, examples)]));
}

/// `helm lint` with its advice, such as a missing icon.
#[test]
fn the_linter_of_helm_has_no_advice() {
    let mut lint = Command::new(repository("scripts/helm-lint"));
    let output = lint.output().unwrap();
    if output.status.code() == Some(77) {
        skip::report("the Helm chart", "needs helm, or scripts/install-helm");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{problem}");
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
