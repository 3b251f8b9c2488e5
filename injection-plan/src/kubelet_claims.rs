//! Reads the kubelet checkpoint `dra_manager_state`. In this file the kubelet records which pods
//! have each resource claim (Kubernetes, pkg/kubelet/cm/dra/state). It writes the file before a
//! claim is prepared, and therefore before a container with the claim starts. Fields that Boathook
//! does not need are ignored. The checksum is not verified, because kubelet versions compute it
//! differently.

use std::collections::BTreeMap;
use std::path::Path;

use host_files::json_text;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::kubelet_checkpoint::{self, CheckpointError};

/// The name of the checkpoint file. It is in the kubelet's root directory, `/var/lib/kubelet` by
/// default.
pub const FILE_NAME: &str = "dra_manager_state";

/// The resource claims of all pods on this node, as the kubelet's checkpoint lists them.
#[derive(Debug, Default, Deserialize)]
pub struct KubeletClaims {
    // Kubelet versions use one of two keys. A checkpoint with neither of them has an unknown
    // layout, and parsing fails.
    #[serde(
        rename = "ClaimInfoStateList",
        alias = "Entries",
        deserialize_with = "Option::deserialize"
    )]
    claims: Option<Vec<Claim>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Claim {
    #[serde(rename = "ClaimUID")]
    uid: String,
    #[serde(default, rename = "ClaimName")]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(rename = "PodUIDs")]
    pods: Option<BTreeMap<String, IgnoredAny>>,
}

/// The outer JSON object of the checkpoint. The value of `Data` is a string that contains another
/// JSON document.
#[derive(Deserialize)]
struct ClaimsFile {
    #[serde(rename = "Data")]
    data: String,
}

impl KubeletClaims {
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        Self::parse(&kubelet_checkpoint::read_checkpoint(path)?)
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let file: ClaimsFile = json_text::parse(bytes)?;
        Ok(serde_json::from_str(&file.data)?)
    }

    /// Returns whether any pod has the claim with this uid.
    pub fn is_claim_used(&self, uid: &str) -> bool {
        self.find_claim_of_pod(uid, |_| true).is_some()
    }

    /// Returns the claim with this uid as `namespace/name`. Returns `None` if no pod of the claim
    /// has a uid that `is_pod` accepts.
    pub fn find_claim_of_pod(&self, uid: &str, is_pod: impl Fn(&str) -> bool) -> Option<String> {
        let has_pod = |claim: &Claim| claim.pods.iter().flatten().any(|(pod, _)| is_pod(pod));
        let mut claims = self.claims.iter().flatten();
        let claim = claims.find(|claim| claim.uid == uid && has_pod(claim))?;
        Some(format!("{}/{}", claim.namespace, claim.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_of_a_claim_are_read() {
        let data = r#"{"kind":"DRACheckpoint","ClaimInfoStateList":[
            {"ClaimUID":"c-1","ClaimName":"a","Namespace":"n","PodUIDs":{"p-1":{},"p-2":{}},"DriverState":{}},
            {"ClaimUID":"c-2","PodUIDs":null}]}"#;
        for key in ["ClaimInfoStateList", "Entries"] {
            let data = data.replace("ClaimInfoStateList", key);
            let text = serde_json::json!({"Data": data, "Checksum": 1}).to_string();
            let record = KubeletClaims::parse(text.as_bytes()).unwrap();
            let held = |claim, pod| record.find_claim_of_pod(claim, |uid| uid == pod);
            for (claim, pod, name) in [
                ("c-1", "p-1", Some("n/a")),
                ("c-1", "p-2", Some("n/a")),
                ("c-1", "p-3", None),
                ("c-2", "p-1", None),
                ("c-3", "p-1", None),
            ] {
                assert_eq!(held(claim, pod).as_deref(), name);
            }
        }
        let record = KubeletClaims::parse(
            serde_json::json!({"Data": data, "Checksum": 1})
                .to_string()
                .as_bytes(),
        );
        let record = record.unwrap();
        assert_eq!(
            ["c-1", "c-2", "c-3"].map(|uid| record.is_claim_used(uid)),
            [true, false, false]
        );
        assert!(KubeletClaims::parse(b"{}").is_err());
        // A layout that is not known is no record without claims.
        let parse = |data: &str| {
            let text = serde_json::json!({"Data": data, "Checksum": 1}).to_string();
            KubeletClaims::parse(text.as_bytes())
        };
        assert!(parse("{}").is_err());
        assert!(
            !parse(r#"{"ClaimInfoStateList":null}"#)
                .unwrap()
                .is_claim_used("c-1")
        );
    }
}
