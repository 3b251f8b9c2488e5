//! Defines the messages between the API server and a webhook: AdmissionReview of
//! admission.k8s.io/v1, with only the fields that the webhook needs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub const API_VERSION: &str = "admission.k8s.io/v1";

/// The maximum length of a warning, in bytes. The API server may truncate longer warnings
/// (documentation of `AdmissionResponse.warnings`).
const MAX_WARNING_BYTES: usize = 120;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionReview<'a> {
    pub api_version: String,
    #[serde(borrow)]
    pub request: AdmissionRequest<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    pub uid: String,
    pub resource: GroupResource,
    pub sub_resource: Option<String>,
    /// The namespace of the object. When an object is created, the object itself may not contain
    /// its namespace.
    #[serde(default)]
    pub namespace: String,
    pub operation: String,
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct GroupResource {
    #[serde(default)]
    pub group: String,
    pub resource: String,
}

/// Builds the answer that admits an object with the changes of `patch`. The warnings are shown to
/// the user who creates the object.
pub fn admit(uid: &str, patch: &Patch, warnings: Vec<String>) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    if !patch.0.is_empty() {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(patch.to_string()).into();
    }
    if !warnings.is_empty() {
        response["warnings"] = warnings.into_iter().map(truncate_warning).collect();
    }
    build_answer(response)
}

/// Builds the answer that refuses an object. `status_code` is an HTTP status code.
pub fn deny(uid: &str, status_code: u16, message: &str) -> Value {
    let status = json!({"code": status_code, "message": message});
    build_answer(json!({"uid": uid, "allowed": false, "status": status}))
}

fn build_answer(response: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
}

fn truncate_warning(mut warning: String) -> String {
    let mut end = warning.len().min(MAX_WARNING_BYTES);
    while !warning.is_char_boundary(end) {
        end -= 1;
    }
    warning.truncate(end);
    warning
}
