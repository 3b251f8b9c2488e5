//! The kubelet's record of which pods have which resource claims (`dra_manager_state`;
//! Kubernetes, pkg/kubelet/cm/dra/state). It is written before a claim is prepared, and so
//! before a container starts. Only what is needed is read; the checksum, which differs
//! between versions of the kubelet, is not verified.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::record::{Record, RecordError};

/// The file's name, in the kubelet's root directory.
pub const FILE_NAME: &str = "dra_manager_state";

/// The claims of one node.
#[derive(Debug, Default, Deserialize)]
pub struct ClaimRecord {
    #[serde(default, rename = "ClaimInfoStateList", alias = "Entries")]
    claims: Option<Vec<Claim>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Claim {
    #[serde(rename = "ClaimUID")]
    uid: String,
    #[serde(rename = "PodUIDs")]
    pods: Option<BTreeMap<String, IgnoredAny>>,
}

/// The file: its data is text.
#[derive(Deserialize)]
struct Checkpoint {
    #[serde(rename = "Data")]
    data: String,
}

impl ClaimRecord {
    /// Reads the record, once and whole.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let mut bytes = Vec::new();
        File::open(path)?
            .take(Record::MAX as u64 + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() > Record::MAX {
            return Err(RecordError::TooLarge);
        }
        Self::parse(&bytes)
    }

    /// A record from the file's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let checkpoint: Checkpoint = json_text::parse(bytes)?;
        Ok(serde_json::from_str(&checkpoint.data)?)
    }

    /// The uids of the pods that have a claim, as the kubelet wrote them.
    pub fn pods_of(&self, claim: &str) -> impl Iterator<Item = &str> {
        let claims = self.claims.iter().flatten();
        let claims = claims.filter(move |one| one.uid == claim);
        let pods = claims.flat_map(|one| one.pods.iter().flatten());
        pods.map(|(uid, _)| uid.as_str())
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
            let record = ClaimRecord::parse(text.as_bytes()).unwrap();
            assert_eq!(record.pods_of("c-1").collect::<Vec<_>>(), ["p-1", "p-2"]);
            assert_eq!(record.pods_of("c-2").count(), 0);
            assert_eq!(record.pods_of("c-3").count(), 0);
        }
        assert!(ClaimRecord::parse(b"{}").is_err());
    }
}
