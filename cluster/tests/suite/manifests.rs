//! Tests of the manifests of `deploy/scheduler` and `deploy/webhook`, as `kubectl kustomize`
//! renders them, and of the chart: the types of the objects, and their references to each
//! other.

mod chart;
mod scheduler;
mod webhook;

use std::path::PathBuf;

use harness::manifests::{kustomized, repository, typed};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn deploy(path: &str) -> PathBuf {
    repository("deploy").join(path)
}

/// Renders the objects of a kustomization. Returns `None` without kubectl, and the test is
/// skipped.
fn rendered(path: &str) -> Option<Vec<Value>> {
    kustomized(&deploy(path)).unwrap()
}

/// Returns the only object of a kind. A field that its Rust type does not have fails the test.
fn only<'v>(objects: &'v [Value], kind: &str) -> &'v Value {
    fn is<T: DeserializeOwned + Serialize>(object: &Value) {
        typed::<T>(object).unwrap();
    }
    let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let object = of_kind.next().unwrap_or_else(|| panic!("no {kind}"));
    assert_eq!(of_kind.next(), None, "{kind}");
    match kind {
        "ClusterRole" => is::<ClusterRole>(object),
        "ConfigMap" => is::<ConfigMap>(object),
        "Deployment" => is::<Deployment>(object),
        "MutatingWebhookConfiguration" => is::<MutatingWebhookConfiguration>(object),
        "NetworkPolicy" => is::<NetworkPolicy>(object),
        "PodDisruptionBudget" => is::<PodDisruptionBudget>(object),
        "Role" => is::<Role>(object),
        "Service" => is::<Service>(object),
        "ServiceAccount" => is::<ServiceAccount>(object),
        other => panic!("no type for {other}"),
    }
    object
}

/// Returns the items of a list, or nothing if there is no list.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn pod(deployment: &Value) -> &Value {
    assert_eq!(deployment["spec"]["replicas"], 2);
    &deployment["spec"]["template"]["spec"]
}

/// Checks the properties that all deployments have in common.
fn check(objects: &[Value]) {
    let deployment = only(objects, "Deployment");
    let spec = pod(deployment);
    let account = &only(objects, "ServiceAccount")["metadata"]["name"];
    assert_eq!(spec["serviceAccountName"], *account);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let is_selected = |selector: &Value| {
        let selected = selector.as_object().unwrap();
        assert!(!selected.is_empty());
        assert!(selected.iter().all(|(key, value)| labels[key] == *value));
    };
    is_selected(&deployment["spec"]["selector"]["matchLabels"]);
    let budget = &only(objects, "PodDisruptionBudget")["spec"];
    is_selected(&budget["selector"]["matchLabels"]);
    assert_eq!(budget["minAvailable"], 1);

    let policy = &only(objects, "NetworkPolicy")["spec"];
    is_selected(&policy["podSelector"]["matchLabels"]);
    let allowed = list(&policy["ingress"]).flat_map(|rule| list(&rule["ports"]));
    let mut named: Vec<&Value> = allowed.map(|port| &port["port"]).collect();
    if objects.iter().any(|object| object["kind"] == "Service") {
        let service = &only(objects, "Service")["spec"];
        is_selected(&service["selector"]);
        named.extend(list(&service["ports"]).map(|port| &port["targetPort"]));
    }
    let ports = list(&spec["containers"]).flat_map(|container| list(&container["ports"]));
    let ports: Vec<&Value> = ports.map(|port| &port["name"]).collect();
    for name in named {
        assert!(name.is_string() && ports.contains(&name), "{name}");
    }
    let volumes = list(&spec["volumes"]).map(|volume| &volume["name"]);
    let volumes: Vec<&Value> = volumes.collect();
    for container in list(&spec["containers"]) {
        let name = &container["name"];
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        assert!(container["livenessProbe"].is_object(), "{name}");
        assert!(container["readinessProbe"].is_object(), "{name}");
        let limit = &container["resources"]["limits"]["memory"];
        assert!(limit.is_string(), "{name}");
        for mount in list(&container["volumeMounts"]) {
            assert!(volumes.contains(&&mount["name"]), "{name}: {mount}");
        }
    }
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
}

/// Returns the arguments of the program in a container. The container must use Boathook's
/// image.
fn command(deployment: &Value, container: &str) -> Vec<String> {
    let mut containers = list(&pod(deployment)["containers"]);
    let container = containers.find(|one| one["name"] == container).unwrap();
    let image = format!("boathook-cluster:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(container["image"], image);
    let words = list(&container["command"]).chain(list(&container["args"]));
    let words = words.map(|word| word.as_str().unwrap().to_owned());
    let words: Vec<String> = words.collect();
    let dockerfile = include_str!("../../Dockerfile");
    let copied = format!("COPY --from=build /out{0} {0}", words[0]);
    assert!(dockerfile.contains(&copied), "{copied}");
    words
}
