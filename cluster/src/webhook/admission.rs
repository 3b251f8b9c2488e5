//! Admission reviews, version 1. Only the needed fields are read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub const API_VERSION: &str = "admission.k8s.io/v1";

const KIND: &str = "AdmissionReview";

/// The longest warning, in bytes: the API server may cut longer ones.
const MAX_WARNING: usize = 120;

/// The API server's request for a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionReview<'a> {
    pub api_version: String,
    #[serde(borrow)]
    pub request: AdmissionRequest<'a>,
}

/// A request to admit an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    pub uid: String,
    pub resource: GroupResource,
    pub sub_resource: Option<String>,
    /// The object's namespace, which need not be in the object itself.
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

/// The response to the API server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    // Both or neither.
    #[serde(flatten)]
    patch: Option<EncodedPatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedPatch {
    patch_type: &'static str,
    patch: String,
}

impl Answer {
    /// The object is admitted, with these changes.
    pub fn admit(uid: String, patch: &Patch, warnings: Vec<String>) -> serde_json::Result<Self> {
        let patch = match patch.0.is_empty() {
            true => None,
            false => Some(EncodedPatch {
                patch_type: "JSONPatch",
                patch: STANDARD.encode(serde_json::to_vec(patch)?),
            }),
        };
        let warnings = warnings.into_iter().map(cut).collect();
        Ok(Self::of(Response {
            uid,
            allowed: true,
            status: None,
            patch,
            warnings,
        }))
    }

    pub fn deny(uid: String, code: u16, message: String) -> Self {
        Self::of(Response {
            uid,
            allowed: false,
            status: Some(Status { code, message }),
            patch: None,
            warnings: Vec::new(),
        })
    }

    fn of(response: Response) -> Self {
        Self {
            api_version: API_VERSION,
            kind: KIND,
            response,
        }
    }
}

fn cut(mut warning: String) -> String {
    let mut end = warning.len().min(MAX_WARNING);
    while !warning.is_char_boundary(end) {
        end -= 1;
    }
    warning.truncate(end);
    warning
}
