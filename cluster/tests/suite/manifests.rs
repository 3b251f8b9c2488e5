//! The manifests of `deploy/scheduler` and `deploy/webhook`, as `kubectl kustomize`
//! renders them, and the chart's: their types, and their references to each other.

mod chart;
mod scheduler;
mod webhook;

use std::collections::BTreeMap;
use std::path::PathBuf;

use harness::manifests::{kustomized, repository, typed};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PodSpec, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn deploy(path: &str) -> PathBuf {
    repository("deploy").join(path)
}

/// The objects of a kustomization; `None`, and the test is skipped, without kubectl.
fn rendered(path: &str) -> Option<Vec<Value>> {
    kustomized(&deploy(path)).unwrap()
}

/// The one object of a kind.
fn only<T: DeserializeOwned + serde::Serialize>(objects: &[Value], kind: &str) -> T {
    let of_kind: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .collect();
    let [object] = of_kind[..] else {
        panic!("{} of {kind}", of_kind.len());
    };
    typed(object).unwrap()
}

fn pod(deployment: &Deployment) -> &PodSpec {
    let spec = &deployment.spec;
    assert_eq!(spec.replicas, Some(2));
    spec.template.spec.as_ref().unwrap()
}

/// Checks what all deployments have in common.
fn check(objects: &[Value]) {
    let deployment: Deployment = only(objects, "Deployment");
    let account: ServiceAccount = only(objects, "ServiceAccount");
    let spec = pod(&deployment);
    assert_eq!(spec.service_account_name, account.metadata.name);
    let labels = deployment.spec.template.metadata.as_ref();
    let labels: &BTreeMap<String, String> = labels.unwrap().labels.as_ref().unwrap();
    let has = |selected: Option<&BTreeMap<String, String>>| {
        let selected = selected.unwrap();
        assert!(!selected.is_empty());
        selected
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    };
    let selector = &deployment.spec.selector;
    assert!(has(selector.match_labels.as_ref()));
    let budget: PodDisruptionBudget = only(objects, "PodDisruptionBudget");
    let budget = budget.spec.unwrap();
    assert!(has(budget.selector.unwrap().match_labels.as_ref()));
    assert_eq!(budget.min_available, Some(IntOrString::Int(1)));

    let ports: Vec<&str> = spec
        .containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .map(|port| port.name.as_deref().unwrap())
        .collect();
    let policy: NetworkPolicy = only(objects, "NetworkPolicy");
    let policy = policy.spec.unwrap();
    assert!(has(policy.pod_selector.unwrap().match_labels.as_ref()));
    let allowed = policy
        .ingress
        .iter()
        .flatten()
        .flat_map(|rule| rule.ports.iter().flatten());
    for port in allowed {
        let Some(IntOrString::String(name)) = &port.port else {
            panic!("{port:?}")
        };
        assert!(ports.contains(&name.as_str()), "{name}");
    }
    if objects.iter().any(|object| object["kind"] == "Service") {
        let service: Service = only(objects, "Service");
        let service = service.spec.unwrap();
        assert!(has(service.selector.as_ref()));
        for port in service.ports.iter().flatten() {
            let Some(IntOrString::String(name)) = &port.target_port else {
                panic!("{port:?}")
            };
            assert!(ports.contains(&name.as_str()), "{name}");
        }
    }
    for container in &spec.containers {
        let name = &container.name;
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.allow_privilege_escalation, Some(false), "{name}");
        assert_eq!(context.read_only_root_filesystem, Some(true), "{name}");
        assert!(container.liveness_probe.is_some() && container.readiness_probe.is_some());
        let limits = container.resources.as_ref().unwrap().limits.as_ref();
        assert!(limits.unwrap().contains_key("memory"), "{name}");
        let mounts = container.volume_mounts.iter().flatten();
        for mount in mounts {
            let mut volumes = spec.volumes.iter().flatten();
            assert!(
                volumes.any(|volume| volume.name == mount.name),
                "{name}: {mount:?}"
            );
        }
    }
    assert_eq!(
        spec.security_context.as_ref().unwrap().run_as_non_root,
        Some(true)
    );
}

/// The arguments that the program gets in a container of Boathook's image.
fn command(deployment: &Deployment, container: &str) -> Vec<String> {
    let mut containers = pod(deployment).containers.iter();
    let container = containers.find(|one| one.name == container).unwrap();
    let image = format!("boathook-cluster:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(container.image.as_ref(), Some(&image));
    let dockerfile = include_str!("../../Dockerfile");
    let program = &container.command.as_ref().unwrap()[0];
    assert!(
        dockerfile.contains(&format!("COPY --from=build /out{program} {program}")),
        "{program}"
    );
    [
        container.command.clone().unwrap(),
        container.args.clone().unwrap(),
    ]
    .concat()
}

fn rules(rules: Option<Vec<PolicyRule>>) -> Value {
    serde_json::to_value(rules.unwrap()).unwrap()
}
