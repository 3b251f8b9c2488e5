//! Tests of the webhook's manifests, with a certificate of its own and with one of
//! cert-manager.

use clap::Parser;
use cluster::webhook::program::Cli;
use serde_json::json;

use super::{check, command, only, pod, rendered};

#[test]
fn the_webhook_can_read_its_objects_and_nothing_else() {
    for path in ["webhook/default", "webhook/cert-manager"] {
        let Some(objects) = rendered(path) else {
            return;
        };
        check(&objects);
        let deployment = only(&objects, "Deployment");
        Cli::try_parse_from(command(deployment, "webhook")).unwrap();
        let wanted = json!([{"apiGroups": ["fpga.intel.com"],
            "resources": ["acceleratorfunctions", "fpgaregions"],
            "verbs": ["get", "list", "watch"]}]);
        assert_eq!(only(&objects, "ClusterRole")["rules"], wanted, "{path}");
        for kind in ["Role", "RoleBinding"] {
            let mut kinds = objects.iter().map(|object| &object["kind"]);
            assert!(kinds.all(|one| one != kind), "{kind}");
        }
    }
}

#[test]
fn the_webhook_is_called_only_for_pods_with_fpgas() {
    let Some(objects) = rendered("webhook/default") else {
        return;
    };
    let webhooks = &only(&objects, "MutatingWebhookConfiguration")["webhooks"];
    assert_eq!(webhooks.as_array().unwrap().len(), 1);
    let (webhook, service) = (&webhooks[0], only(&objects, "Service"));
    let reference = &webhook["clientConfig"]["service"];
    for key in ["name", "namespace"] {
        assert_eq!(reference[key], service["metadata"][key]);
    }
    assert_eq!(reference["path"], "/pods");
    assert_eq!(service["spec"]["ports"][0]["port"], 443);
    assert_eq!(webhook["failurePolicy"], "Fail");
    assert_eq!(webhook["sideEffects"], "None");
    assert_eq!(webhook["rules"].as_array().unwrap().len(), 1);
    let rule = &webhook["rules"][0];
    assert_eq!(rule["operations"], json!(["CREATE"]));
    assert_eq!(rule["resources"], json!(["pods"]));
    let conditions = webhook["matchConditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0]["name"], "asks-for-an-fpga");
    let excluded = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*excluded, json!(["kube-system", reference["namespace"]]));
}

#[test]
fn cert_manager_makes_the_certificate_that_the_webhook_reads() {
    let Some(objects) = rendered("webhook/cert-manager") else {
        return;
    };
    let of_kind = |kind: &str| {
        let mut objects = objects.iter();
        objects.find(|object| object["kind"] == kind).unwrap()
    };
    let configuration = of_kind("MutatingWebhookConfiguration");
    let injected = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    let certificate = of_kind("Certificate");
    let of = |key: &str| certificate["metadata"][key].as_str().unwrap();
    assert_eq!(*injected, format!("{}/{}", of("namespace"), of("name")));
    let volume = &pod(only(&objects, "Deployment"))["volumes"][0];
    let secret = &volume["secret"]["secretName"];
    assert_eq!(certificate["spec"]["secretName"], *secret);
    let service = &configuration["webhooks"][0]["clientConfig"]["service"];
    let of = |key: &str| service[key].as_str().unwrap();
    let name = format!("{}.{}.svc", of("name"), of("namespace"));
    assert_eq!(certificate["spec"]["dnsNames"][0], name);
}
