//! Tests of admission reviews over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::webhook::review::{LIMITS, MAX_BODY_BYTES, Reviewer};
use serde_json::{Value, json};

use super::{container, mappings, pod};
use crate::client::{build_post, exchange, split_answer, start_server};

async fn start_webhook(listed: bool) -> SocketAddr {
    let reviewer = Arc::new(Reviewer::default());
    if listed {
        reviewer.change_mappings(|current| *current = mappings());
    }
    start_server(LIMITS, reviewer.handler()).await
}

/// Returns the answer for a pod that is not changed.
fn admitted() -> Value {
    json!({"uid": "705ab4f5", "allowed": true})
}

pub(crate) fn review(pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "", "namespace": "fpga", "operation": "CREATE",
            "userInfo": {"username": "u"}, "object": pod, "oldObject": null, "dryRun": true,
            "options": {"kind": "CreateOptions"}, "later": [],
        },
    })
}

async fn ask(address: SocketAddr, review: &Value) -> Value {
    let answer = exchange(address, &build_post("/pods", &review.to_string()), false).await;
    let (status, body) = split_answer(&answer);
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(body).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "705ab4f5");
    answer["response"].clone()
}

#[tokio::test]
async fn patch_and_type_come_together_or_not_at_all() {
    let address = start_webhook(true).await;
    let response = ask(address, &review(&pod(container(&[("nlb0-orch", "1")])))).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD.decode(response["patch"].as_str().unwrap());
    let patch: Value = serde_json::from_slice(&patch.unwrap()).unwrap();
    assert_eq!(patch.as_array().unwrap().len(), 7);
    for unchanged in [&[][..], &[("region-69528db6eb31577a8c3668f9faa081f6", "1")]] {
        let response = ask(address, &review(&pod(container(unchanged)))).await;
        assert_eq!(response, admitted(), "{unchanged:?}");
    }
}

#[tokio::test]
async fn a_denial_has_its_reason() {
    let address = start_webhook(true).await;
    let response = ask(address, &review(&pod(container(&[("unknown", "1")])))).await;
    assert_eq!(response["allowed"], false);
    let message = "container main: no such resource: \"unknown\" (namespace fpga)";
    assert_eq!(response["status"], json!({"code": 403, "message": message}));
    assert!(response.get("patch").is_none() && response.get("patchType").is_none());
}

#[tokio::test]
async fn updates_deletions_and_other_objects_are_admitted_unchanged() {
    let address = start_webhook(true).await;
    let base = review(&pod(container(&[("unknown", "1")])));
    let deployments = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    for (key, value) in [
        ("operation", json!("UPDATE")),
        ("operation", json!("DELETE")),
        ("subResource", json!("ephemeralcontainers")),
        ("resource", deployments),
    ] {
        let mut other = base.clone();
        other["request"][key] = value;
        assert_eq!(ask(address, &other).await, admitted(), "{key}");
    }
}

#[tokio::test]
async fn before_the_first_list_only_pods_that_need_it_are_refused() {
    let address = start_webhook(false).await;
    let response = ask(address, &review(&pod(container(&[])))).await;
    assert_eq!(response["allowed"], true);
    let response = ask(address, &review(&pod(container(&[("nlb0-orch", "1")])))).await;
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    let reason = "has not listed AcceleratorFunctions and FpgaRegions";
    assert!(message.contains(reason), "{message}");
}

#[tokio::test]
async fn a_body_that_is_not_a_review_is_refused() {
    let address = start_webhook(true).await;
    let mut old = review(&pod(container(&[])));
    old["apiVersion"] = "admission.k8s.io/v1beta1".into();
    let odd = json!({"spec": {"containers": 3}});
    let of_version = "admission.k8s.io/v1beta1: not admission.k8s.io/v1";
    for (body, reason) in [
        (review(&odd).to_string(), "the pod cannot be reviewed"),
        (String::new(), "not an admission review"),
        ("{}".to_owned(), "missing field"),
        (old.to_string(), of_version),
    ] {
        let answer = exchange(address, &build_post("/pods", &body), false).await;
        let (status, said) = split_answer(&answer);
        assert_eq!(status, 400, "{answer}");
        assert!(said.contains(reason), "{answer}");
    }
    let long = " ".repeat(MAX_BODY_BYTES + 1);
    let head = build_post("/pods", &long);
    let end = head.len() - long.len();
    let answer = exchange(address, &head[..end], false).await;
    assert_eq!(split_answer(&answer).0, 413);
}
