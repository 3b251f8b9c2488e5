//! The webhook, with its own certificate and with cert-manager's.

use clap::Parser;
use cluster::webhook::program::Cli;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::json;

use super::{check, command, only, pod, rendered, rules};

#[test]
fn the_webhook_can_read_its_objects_and_nothing_else() {
    for path in ["webhook/default", "webhook/cert-manager"] {
        let Some(objects) = rendered(path) else {
            return;
        };
        check(&objects);
        let deployment: Deployment = only(&objects, "Deployment");
        Cli::try_parse_from(command(&deployment, "webhook")).unwrap();
        let role: ClusterRole = only(&objects, "ClusterRole");
        let wanted = json!([{"apiGroups": ["fpga.intel.com"],
            "resources": ["acceleratorfunctions", "fpgaregions"],
            "verbs": ["get", "list", "watch"]}]);
        assert_eq!(rules(role.rules), wanted, "{path}");
        for kind in ["Role", "RoleBinding"] {
            assert!(
                objects.iter().all(|object| object["kind"] != kind),
                "{kind}"
            );
        }
    }
}

#[test]
fn the_webhook_is_called_only_for_pods_with_fpgas() {
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
    assert_eq!(condition.name, "asks-for-an-fpga");
    let selector = webhook
        .namespace_selector
        .as_ref()
        .unwrap()
        .match_expressions
        .as_ref();
    let excluded = selector.unwrap()[0].values.as_ref().unwrap();
    assert_eq!(excluded, &["kube-system", &reference.namespace]);
}

#[test]
fn cert_manager_makes_the_certificate_that_the_webhook_reads() {
    let Some(objects) = rendered("webhook/cert-manager") else {
        return;
    };
    let deployment: Deployment = only(&objects, "Deployment");
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
