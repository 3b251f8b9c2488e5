//! Resource claims: the kubelet's record, this driver's, and what the API server has.

use dra::claim::{ClaimUid, Record, list_allocated_devices};
use injection_plan::kubelet_claims::KubeletClaims;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::Value;

/// The kubelet's record. A pod has a claim only if the record says so.
pub(crate) fn kubelets_record(bytes: &[u8]) {
    let Ok(record) = KubeletClaims::parse(bytes) else {
        return;
    };
    // What is not read may have escapes for half a surrogate pair.
    let Ok(file) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let data = file["Data"].as_str().unwrap_or("null");
    let Ok(data) = serde_json::from_str::<Value>(data) else {
        return;
    };
    assert_eq!(record.find_claim_of_pod("no claim", |_| true), None);
    let lists = ["ClaimInfoStateList", "Entries"].map(|key| data[key].as_array());
    for claim in lists.into_iter().flatten().flatten().take(8) {
        let Some(uid) = claim["ClaimUID"].as_str() else {
            continue;
        };
        assert_eq!(record.find_claim_of_pod(uid, |_| false), None);
        let pods = claim["PodUIDs"].as_object();
        for pod in pods.into_iter().flatten().map(|(pod, _)| pod).take(8) {
            assert!(record.find_claim_of_pod(uid, |held| held == pod).is_some());
        }
    }
}

/// A record of a prepared claim, which is the same when it is written and read.
pub(crate) fn record(bytes: &[u8]) {
    let Ok(record) = serde_json::from_slice::<Record>(bytes) else {
        return;
    };
    let uid = record.uid.as_str();
    assert!(!uid.is_empty() && !uid.contains(['/', '.', '\0']), "{uid}");
    let text = serde_json::to_vec(&record).unwrap();
    assert_eq!(serde_json::from_slice::<Record>(&text).unwrap(), record);
}

/// A claim of the API server, whose parameters for the driver its author writes.
pub(crate) fn parameters(bytes: &[u8]) {
    let Ok(claim) = serde_json::from_slice::<ResourceClaim>(bytes) else {
        return;
    };
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let Ok(uid) = ClaimUid::try_from(uid) else {
        return;
    };
    let status = claim.status.as_ref();
    let reserved = status.and_then(|status| status.reserved_for.as_ref());
    match list_allocated_devices(&claim, &uid) {
        Ok(devices) => {
            assert!(reserved.is_some_and(|pods| !pods.is_empty()));
            let status = serde_json::to_value(status).unwrap();
            let results = status["allocation"]["devices"]["results"].as_array();
            let ours = results.into_iter().flatten();
            let ours = ours.filter(|result| result["driver"] == dra::names::DRIVER);
            assert_eq!(ours.count(), devices.len());
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() < 1000, "{} bytes", message.len());
        }
    }
}
