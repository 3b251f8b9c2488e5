//! For which pods the API server calls the webhook: the CEL expression of its
//! configuration, evaluated, with pods as the API server has them after defaulting.

use cel::{Context, Program, Value as CelValue, to_value};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use serde_json::{Value, json};

use super::{only, rendered};

const FPGA: &str = "fpga.intel.com/arria10.dcp1.0-nlb0-orchestrated";
const MAPPED: &str = "fpga.intel.com/region-ce48969398f05f33946d560708be108a";

fn webhook(path: &str) -> Option<MutatingWebhook> {
    let objects = rendered(path)?;
    let configuration: MutatingWebhookConfiguration =
        only(&objects, "MutatingWebhookConfiguration");
    configuration.webhooks.unwrap().pop()
}

/// The expression's value for a pod that is being created. An error in it would
/// count as the webhook's failure, and the pod be refused.
fn is_called(expression: &Program, pod: &Value) -> Result<bool, String> {
    let request = json!({
        "uid": "705ab4f5", "operation": "CREATE", "namespace": "fpga", "name": "", "dryRun": false,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "system:serviceaccount:kube-system:job-controller"},
    });
    let mut context = Context::default();
    for (name, value) in [
        ("object", pod),
        ("oldObject", &Value::Null),
        ("request", &request),
    ] {
        context.add_variable_from_value(name, to_value(value).unwrap());
    }
    match expression.execute(&context) {
        Ok(CelValue::Bool(asked)) => Ok(asked),
        other => Err(format!("{other:?}")),
    }
}

fn container(resources: &Value) -> Value {
    json!({
        "name": "c", "image": "x", "resources": resources, "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

fn pod(init: Option<Vec<Value>>, containers: Vec<Value>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "job-", "creationTimestamp": null},
        "spec": {"containers": containers, "restartPolicy": "Never", "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "securityContext": {}},
        "status": {},
    });
    if let Some(init) = init {
        pod["spec"]["initContainers"] = init.into();
    }
    pod
}

#[test]
fn the_api_server_sends_only_pods_with_fpgas() {
    let Some(webhook) = webhook("webhook/default") else {
        return;
    };
    let conditions = webhook.match_conditions.unwrap();
    let expression = Program::compile(&conditions[0].expression).unwrap();
    let none = || container(&json!({}));
    let fpga = || container(&json!({"limits": {FPGA: "1"}, "requests": {FPGA: "1"}}));
    let other = || {
        let amounts = json!({"cpu": "1", "nvidia.com/gpu": "1", "fpga.intel.community/x": "1",
            "requests.fpga.intel.com/x": "1"});
        container(&json!({"limits": amounts, "requests": amounts}))
    };
    let mut sidecar = fpga();
    sidecar["restartPolicy"] = "Always".into();
    let limits = container(&json!({"limits": {FPGA: "1"}}));
    let requests = container(&json!({"requests": {FPGA: "1"}}));
    let mapped = container(&json!({"limits": {MAPPED: "1"}, "requests": {MAPPED: "1"}}));
    let mut bare = none();
    bare.as_object_mut().unwrap().remove("resources");
    for (what, init, containers, asked) in [
        ("a container", None, vec![fpga()], true),
        ("the second container", None, vec![none(), fpga()], true),
        ("only limits", None, vec![limits], true),
        ("only requests", None, vec![requests], true),
        ("an init container", Some(vec![fpga()]), vec![none()], true),
        (
            "a sidecar",
            Some(vec![none(), sidecar]),
            vec![bare.clone()],
            true,
        ),
        ("a name of the device plugin", None, vec![mapped], true),
        ("beside other resources", None, vec![other(), fpga()], true),
        ("nothing", None, vec![none()], false),
        (
            "no resources at all",
            Some(vec![bare.clone()]),
            vec![bare.clone()],
            false,
        ),
        ("empty lists", Some(vec![]), vec![], false),
        (
            "empty limits and requests",
            None,
            vec![container(&json!({"limits": {}, "requests": {}}))],
            false,
        ),
        (
            "only claims",
            None,
            vec![container(&json!({"claims": [{"name": "g"}]}))],
            false,
        ),
        (
            "other resources",
            Some(vec![other()]),
            vec![other(), none()],
            false,
        ),
    ] {
        assert_eq!(
            is_called(&expression, &pod(init, containers)),
            Ok(asked),
            "{what}"
        );
    }
}

/// The selectors that API servers evaluate before the conditions.
#[test]
fn pods_of_kube_system_and_the_webhooks_own_are_never_sent() {
    for path in ["webhook/default", "webhook/cert-manager"] {
        let Some(webhook) = webhook(path) else {
            return;
        };
        let selector = webhook.namespace_selector.unwrap();
        assert_eq!(selector.match_labels, None);
        let expressions = selector.match_expressions.unwrap();
        let [expression] = &expressions[..] else {
            panic!("{expressions:?}")
        };
        // A label that the API server itself sets on each namespace.
        assert_eq!(expression.key, "kubernetes.io/metadata.name");
        assert_eq!(expression.operator, "NotIn");
        let excluded = expression.values.as_ref().unwrap();
        assert_eq!(excluded, &["kube-system", "boathook-webhook"], "{path}");
    }
}
