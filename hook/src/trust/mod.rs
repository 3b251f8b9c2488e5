//! Collects the facts for the decision about a request ([`crate::authorization`]), and applies
//! the decision. The facts are the origin of a container and the kubelet's records about it.

mod checkpoint;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod origin;
mod pod_uid;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device_class::class::PodPattern;
use device_class::config::Trust;
use device_class::name::{ClassName, DeviceId, NameError, excerpt};
use injection_plan::cdi;
use injection_plan::kubelet_checkpoint::{CheckpointError, KubeletCheckpoint};
use injection_plan::kubelet_claims::{FILE_NAME, KubeletClaims};
use injection_plan::plan::{Authority, RecordUse, RecordedDevices};
use injection_plan::request::Item;

#[cfg(feature = "fuzzing")]
pub use checkpoint::fuzzing::checkpoint;
#[cfg(feature = "fuzzing")]
pub use fuzzing::forged_annotations;
pub(crate) use origin::{Origin, OriginError, may_be_annotated};

use crate::authorization::{ClaimUse, ContainerFacts, Decision, OriginKind, Reason};
use crate::oci::Bundle;
use checkpoint::devices_of;
use pod_uid::PodUid;

/// The reason for which it cannot be decided who authorizes a request.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(
        "the container requests devices, but the kubelet's record of allocated devices, {}, cannot \
         be used",
        path.display()
    )]
    Record {
        path: PathBuf,
        #[source]
        error: CheckpointError,
    },
    /// `boathook-dra` writes ids, which are compared with the kubelet's record of claims.
    #[error(
        "a CDI specification grants `{name}` of {class} for a resource claim, and this is not the \
         id of a device: delete the pod, so that the claim is prepared again"
    )]
    ClaimedName {
        class: ClassName,
        name: String,
        #[source]
        error: NameError,
    },
}

/// Returns the facts on which the decision about a container's requests of a class depends.
pub(crate) fn facts(
    bundle: &Bundle,
    origin: Option<&Origin>,
    class: &[PodPattern],
    trust: &Trust,
) -> ContainerFacts {
    let is_trusted = |pod: &origin::Pod| {
        let mut patterns = class.iter().chain(&trust.trusted_pods);
        patterns.any(|pattern| pattern.matches(&pod.namespace, &pod.name))
    };
    let mut keys = bundle.annotations.keys();
    ContainerFacts {
        origin: match origin {
            Some(Origin::NoPod) => OriginKind::NoPod,
            Some(Origin::Sandbox) => OriginKind::Sandbox,
            Some(Origin::Pod(_)) => OriginKind::Pod,
            None => OriginKind::Uncertain,
        },
        has_hook: bundle.hooks.reads_requests(None),
        allows_variables: trust.allow_env_outside_kubernetes,
        is_trusted: matches!(origin, Some(Origin::Pod(pod)) if is_trusted(pod)),
        names_cdi_devices: keys.any(|key| key.starts_with(cdi::ANNOTATION_PREFIX)),
        has_sys_admin: bundle.has_sys_admin,
    }
}

/// Returns the authority that follows from a decision. The kubelet's records are read if the
/// decision depends on them. Returns `None` if the request does not count.
pub(crate) fn authority(
    decision: Decision,
    origin: &Origin,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
) -> Result<Option<Authority>, TrustError> {
    let nobody = |reason, is_refused| {
        let reason = describe_reason(reason, origin);
        Ok(Some(Authority::Nobody { reason, is_refused }))
    };
    match decision {
        Decision::NotCounted => Ok(None),
        Decision::Request {
            reason,
            trusted_capabilities,
        } => Ok(Some(Authority::Requester {
            reason: describe_reason(reason, origin),
            trusted_capabilities,
        })),
        Decision::Records(record_use, claims) => match origin {
            Origin::Pod(pod) => {
                let recorded = recorded_authority(pod, record_use, claims, class, bundle, trust);
                Ok(Some(Authority::Kubelet(recorded?)))
            }
            Origin::NoPod | Origin::Sandbox => nobody(Reason::Uncertain, true),
        },
        Decision::NoDevice(reason) => nobody(reason, false),
        Decision::Refused(reason) => nobody(reason, true),
    }
}

fn describe_reason(reason: Reason, origin: &Origin) -> String {
    match (reason, origin) {
        (Reason::TrustedPod, Origin::Pod(pod)) => {
            return format!("trusted_pods in the configuration names this {pod}");
        }
        (Reason::TrustedPod, _) => "trusted_pods in the configuration names it",
        (Reason::NoPod, _) => "outside Kubernetes it is enough",
        (Reason::NotAllowed, _) => "the configuration has allow_env_outside_kubernetes = false",
        (Reason::Sandbox, _) => "it is the pod's sandbox, which uses none",
        (Reason::Specification, _) => {
            "a CDI specification grants the devices, and only root can write one"
        }
        (Reason::Administrator, _) => "`boathook attach` by the host's administrator",
        (Reason::Force, _) => "`boathook attach --force`, beside the kubelet's record",
        (Reason::Uncertain, _) => "it is not certain whether the container is a pod's",
    }
    .to_owned()
}

/// Returns the devices that the kubelet recorded for a container. A specification can have
/// several names for one device, so the records count, regardless of the names in the request.
fn recorded_authority(
    pod: &origin::Pod,
    record_use: RecordUse,
    claim_use: ClaimUse,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
) -> Result<RecordedDevices, TrustError> {
    let path = &trust.kubelet_checkpoint;
    let mut recorded = RecordedDevices {
        holder: pod.to_string(),
        record_use,
        ..RecordedDevices::default()
    };
    match KubeletCheckpoint::read(path) {
        Ok(record) => {
            recorded.devices = devices_of(&record, &pod.uid, &pod.container);
        }
        Err(error) if error.is_absent() => recorded.absent_file = Some(path.clone()),
        Err(error) => {
            let path = path.clone();
            return Err(TrustError::Record { path, error });
        }
    }
    let without_record = match claim_use {
        ClaimUse::None => return Ok(recorded),
        ClaimUse::Recorded => false,
        ClaimUse::WithoutRecord => true,
    };
    let (claims, claimed) = recorded_claims(class, bundle, pod, trust, without_record)?;
    recorded.claimed = BTreeMap::from([(class.clone(), claimed)]);
    recorded.claims = claims;
    Ok(recorded)
}

/// Returns the claims that the kubelet recorded for the pod, and their devices. The record is
/// read only if the request names a claim.
fn recorded_claims(
    class: &ClassName,
    bundle: &Bundle,
    pod: &origin::Pod,
    trust: &Trust,
    without_record: bool,
) -> Result<(BTreeSet<String>, BTreeSet<DeviceId>), TrustError> {
    let mut grants = bundle
        .cdi
        .iter()
        .filter(|grant| grant.class == *class)
        .filter_map(|grant| Some((grant, grant.claim.as_ref()?)))
        .peekable();
    let (mut claims, mut claimed) = Default::default();
    if grants.peek().is_none() {
        return Ok((claims, claimed));
    }
    // The record is in the directory above that of device plugins.
    let kubelet = trust.kubelet_checkpoint.ancestors().nth(2);
    let path = kubelet.unwrap_or(Path::new("/")).join(FILE_NAME);
    let record = match KubeletClaims::read(&path) {
        Ok(record) => Some(record),
        Err(error) if error.is_absent() && without_record => None,
        Err(error) if error.is_absent() => return Ok((claims, claimed)),
        Err(error) => return Err(TrustError::Record { path, error }),
    };
    for (grant, claim) in grants {
        let is_pod = |uid: &str| PodUid::parse(uid).as_ref() == Some(&pod.uid);
        let held = match &record {
            None => Some(claim.clone()),
            Some(record) => record.held_by(claim, is_pod),
        };
        if let Some(name) = held {
            claims.insert(name);
            for item in grant.devices.items() {
                claimed.insert(claimed_id(class, item)?);
            }
        }
    }
    Ok((claims, claimed))
}

fn claimed_id(class: &ClassName, item: &Item) -> Result<DeviceId, TrustError> {
    let name = item.to_text();
    DeviceId::try_from(name).map_err(|error| TrustError::ClaimedName {
        class: class.clone(),
        name: excerpt(&item.to_text()),
        error,
    })
}
