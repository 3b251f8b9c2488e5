//! The manifests of `deploy/scheduler` and `deploy/webhook`, as `kubectl kustomize`
//! renders them: in Kubernetes' own types, and what refers to what.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser;
use cluster::scheduler::config::Config;
use cluster::scheduler::program::Cli as SchedulerCli;
use cluster::webhook::api::{PREFIX, definitions};
use cluster::webhook::program::Cli as WebhookCli;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn deploy(path: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.parent().unwrap().join("deploy").join(path)
}

/// The objects of a kustomization. `None`, with a word on the reason, without a kubectl
/// that has kustomize.
fn rendered(path: &str) -> Option<Vec<Value>> {
    let version = Command::new("kubectl")
        .args(["version", "--client"])
        .output();
    // Those that know kustomize's components tell its version.
    let known = |text: &[u8]| String::from_utf8_lossy(text).contains("Kustomize Version");
    if !version.is_ok_and(|version| known(&version.stdout)) {
        skip::report("rendered manifests", "needs kubectl 1.24 or later");
        return None;
    }
    let mut kustomize = Command::new("kubectl");
    let output = kustomize
        .arg("kustomize")
        .arg(deploy(path))
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path}: {complaint}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(serde_saphyr::from_multiple(&text).unwrap())
}

/// The one object of a kind. A key that the type does not know, and the API server
/// would refuse, is an error.
fn only<T: DeserializeOwned + serde::Serialize>(objects: &[Value], kind: &str) -> T {
    let of_kind: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .collect();
    let [object] = of_kind[..] else {
        panic!("{} of {kind}", of_kind.len());
    };
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_known(object, &serde_json::to_value(&typed).unwrap(), kind);
    typed
}

fn assert_known(written: &Value, known: &Value, at: &str) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written {
                let known = known
                    .get(key)
                    .unwrap_or_else(|| panic!("unknown key {at}.{key}"));
                assert_known(value, known, &format!("{at}.{key}"));
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            for (written, known) in written.iter().zip(known) {
                assert_known(written, known, at);
            }
        }
        _ => {}
    }
}

fn pod(deployment: &Deployment) -> &PodSpec {
    let spec = &deployment.spec;
    assert_eq!(spec.replicas, Some(2));
    spec.template.spec.as_ref().unwrap()
}

/// Checks what every one of the deployments has.
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

/// The arguments of a container of our image, as its program gets them.
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

/// The file that a rendered ConfigMap has.
fn file(objects: &[Value], name: &str) -> String {
    let map: ConfigMap = only(objects, "ConfigMap");
    map.data.unwrap()[name].clone()
}

fn rules(rules: Option<Vec<PolicyRule>>) -> Value {
    serde_json::to_value(rules.unwrap()).unwrap()
}

#[test]
fn the_extender_can_read_nodes_and_pods_and_nothing_else() {
    for path in ["scheduler/extender", "scheduler/second-scheduler"] {
        let Some(objects) = rendered(path) else {
            return;
        };
        check(&objects);
        let deployment: Deployment = only(&objects, "Deployment");
        SchedulerCli::try_parse_from(command(&deployment, "scheduler")).unwrap();
        let role: ClusterRole = only(&objects, "ClusterRole");
        let wanted = json!([{"apiGroups": [""], "resources": ["nodes", "pods"],
            "verbs": ["get", "list", "watch"]}]);
        assert_eq!(rules(role.rules), wanted);
        let config = crate::extender::config(&file(&objects, "scheduler.toml"));
        assert_eq!(managed(&scheduler_configuration(path)), names(&config));
    }
}

fn names(config: &Config) -> Vec<String> {
    config
        .resources
        .iter()
        .map(|resource| resource.name.clone())
        .collect()
}

/// A KubeSchedulerConfiguration, in which every key of an extender is known.
fn scheduler_configuration(path: &str) -> Value {
    let text = fs::read_to_string(deploy(path).join("kube-scheduler.yaml")).unwrap();
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let configuration = documents.remove(0);
    assert_eq!(
        configuration["apiVersion"],
        "kubescheduler.config.k8s.io/v1"
    );
    assert_eq!(configuration["kind"], "KubeSchedulerConfiguration");
    let known = [
        "urlPrefix",
        "filterVerb",
        "prioritizeVerb",
        "weight",
        "nodeCacheCapable",
        "ignorable",
        "httpTimeout",
        "managedResources",
        "enableHTTPS",
        "tlsConfig",
    ];
    let [extender] = configuration["extenders"].as_array().unwrap().as_slice() else {
        panic!("not one extender");
    };
    for key in extender.as_object().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "{key}");
    }
    // Without the extender pods are scheduled; nothing is bound or preempted by it.
    assert_eq!(extender["ignorable"], true);
    assert_eq!(extender["nodeCacheCapable"], true);
    assert_eq!(
        (&extender["filterVerb"], &extender["prioritizeVerb"]),
        (&json!("filter"), &json!("prioritize"))
    );
    assert!(extender["weight"].as_u64().unwrap() > 0);
    configuration
}

/// The resources for which the extender is asked; kube-scheduler counts them too.
fn managed(configuration: &Value) -> Vec<String> {
    let managed = configuration["extenders"][0]["managedResources"]
        .as_array()
        .unwrap();
    let name = |resource: &Value| {
        assert_eq!(resource["ignoredByScheduler"], false);
        resource["name"].as_str().unwrap().to_owned()
    };
    managed.iter().map(name).collect()
}

#[test]
fn the_second_scheduler_asks_the_extender_beside_it() {
    let Some(objects) = rendered("scheduler/second-scheduler") else {
        return;
    };
    let configuration = scheduler_configuration("scheduler/second-scheduler");
    assert_eq!(file(&objects, "kube-scheduler.yaml"), {
        fs::read_to_string(deploy("scheduler/second-scheduler/kube-scheduler.yaml")).unwrap()
    });
    assert_eq!(configuration["profiles"][0]["schedulerName"], "boathook");
    let deployment: Deployment = only(&objects, "Deployment");
    let listen = command(&deployment, "scheduler")
        .into_iter()
        .find_map(|argument| argument.strip_prefix("--listen=").map(str::to_owned));
    let url = format!("http://{}", listen.unwrap());
    assert_eq!(configuration["extenders"][0]["urlPrefix"], url);
    // Its lock is the one that it may update.
    let role: Role = only(&objects, "Role");
    let lock = &configuration["leaderElection"]["resourceName"];
    assert_eq!(rules(role.rules)[1]["resourceNames"][0], *lock);
}

#[test]
fn the_webhook_has_rights_to_single_objects_only() {
    let Some(objects) = rendered("webhook/default") else {
        return;
    };
    check(&objects);
    let deployment: Deployment = only(&objects, "Deployment");
    WebhookCli::try_parse_from(command(&deployment, "webhook")).unwrap();
    let secret: Secret = only(&objects, "Secret");
    let configuration: MutatingWebhookConfiguration =
        only(&objects, "MutatingWebhookConfiguration");
    let cluster: ClusterRole = only(&objects, "ClusterRole");
    let cluster = rules(cluster.rules);
    assert_eq!(cluster[0]["verbs"], json!(["get", "list", "watch"]));
    assert_eq!(cluster[1]["resources"], json!(["events"]));
    assert_eq!(
        cluster[2]["resourceNames"],
        json!([configuration.metadata.name])
    );
    assert_eq!(cluster.as_array().unwrap().len(), 3);
    let role: Role = only(&objects, "Role");
    assert_eq!(
        rules(role.rules),
        json!([{"apiGroups": [""], "resources": ["secrets"],
        "resourceNames": [secret.metadata.name], "verbs": ["get", "update"]}])
    );
    for definition in definitions() {
        let name = definition.metadata.name.unwrap();
        let mut objects = objects.iter();
        assert!(
            objects.any(|object| object["metadata"]["name"] == name),
            "{name}"
        );
    }
}

#[test]
fn the_webhook_is_asked_for_pods_with_fpgas_only() {
    let Some(objects) = rendered("webhook/default") else {
        return;
    };
    let configuration: MutatingWebhookConfiguration =
        only(&objects, "MutatingWebhookConfiguration");
    let service: Service = only(&objects, "Service");
    let [webhook] = &configuration.webhooks.unwrap()[..] else {
        panic!("not one webhook")
    };
    let reference = webhook.client_config.service.as_ref().unwrap();
    assert_eq!(Some(&reference.name), service.metadata.name.as_ref());
    assert_eq!(
        Some(&reference.namespace),
        service.metadata.namespace.as_ref()
    );
    assert_eq!(reference.path.as_deref(), Some("/pods"));
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 443);
    assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
    assert_eq!(webhook.side_effects, "None");
    let [rule] = &webhook.rules.as_ref().unwrap()[..] else {
        panic!("not one rule")
    };
    assert_eq!(rule.operations.as_ref().unwrap(), &["CREATE"]);
    assert_eq!(rule.resources.as_ref().unwrap(), &["pods"]);
    let [condition] = &webhook.match_conditions.as_ref().unwrap()[..] else {
        panic!("no condition")
    };
    let expression = &condition.expression;
    assert_eq!(
        expression
            .matches(&format!("r.startsWith('{PREFIX}')"))
            .count(),
        2
    );
    // A field that is missing is an error in CEL, and errors count as failurePolicy.
    for field in [
        "object.spec.initContainers",
        "c.resources",
        "c.resources.limits",
        "c.resources.requests",
    ] {
        assert!(expression.contains(&format!("has({field})")), "{field}");
    }
    let selector = webhook
        .namespace_selector
        .as_ref()
        .unwrap()
        .match_expressions
        .as_ref();
    let excluded = selector.unwrap()[0].values.as_ref().unwrap();
    assert!(excluded.contains(&"kube-system".to_owned()));
    assert!(excluded.contains(&reference.namespace), "{excluded:?}");
}

#[test]
fn with_cert_manager_the_webhook_writes_neither_secret_nor_configuration() {
    let Some(objects) = rendered("webhook/cert-manager") else {
        return;
    };
    check(&objects);
    let deployment: Deployment = only(&objects, "Deployment");
    let arguments = command(&deployment, "webhook");
    assert_eq!(arguments[1..], ["run", "--tls-dir=/tls"]);
    WebhookCli::try_parse_from(arguments).unwrap();
    let role: ClusterRole = only(&objects, "ClusterRole");
    let rules = rules(role.rules);
    assert!(
        rules
            .as_array()
            .unwrap()
            .iter()
            .all(|rule| { rule["apiGroups"] != json!(["admissionregistration.k8s.io"]) })
    );
    for kind in ["Secret", "Role", "RoleBinding"] {
        assert!(
            objects.iter().all(|object| object["kind"] != kind),
            "{kind}"
        );
    }
    let of_kind = |kind: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind)
            .unwrap()
    };
    let configuration = of_kind("MutatingWebhookConfiguration");
    let injected = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    let certificate = of_kind("Certificate");
    assert_eq!(
        *injected,
        format!(
            "{}/{}",
            certificate["metadata"]["namespace"].as_str().unwrap(),
            certificate["metadata"]["name"].as_str().unwrap(),
        )
    );
    let volume = &pod(&deployment).volumes.as_ref().unwrap()[0];
    let secret = volume.secret.as_ref().unwrap().secret_name.clone();
    assert_eq!(certificate["spec"]["secretName"], secret.unwrap());
    let name =
        of_kind("MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"]["service"].clone();
    assert_eq!(
        certificate["spec"]["dnsNames"][0],
        format!(
            "{}.{}.svc",
            name["name"].as_str().unwrap(),
            name["namespace"].as_str().unwrap(),
        )
    );
}
