//! Finds out who authorizes a container's request for devices. First, this module determines the
//! origin of the container: a pod, or a user of the host. Then [`crate::authorization`] decides. If
//! the decision depends on the kubelet's checkpoints, this module reads them.

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
use injection_plan::kubelet_claims::{FILE_NAME as CLAIMS_FILE_NAME, KubeletClaims};
use injection_plan::plan::{Authority, CheckpointDevices, UnrecordedDevicesRule};
use injection_plan::request::DeviceListItem;

#[cfg(feature = "fuzzing")]
pub use checkpoint::fuzzing::checkpoint;
#[cfg(feature = "fuzzing")]
pub use fuzzing::forged_annotations;
pub use origin::{ContainerOrigin, OriginError, may_have_plugin_annotations};

use crate::authorization::{
    AcceptedClaims, ContainerProperties, Decision, DecisionReason, OriginKind,
};
use crate::oci::Bundle;
use checkpoint::find_allocated_devices;
use pod_uid::PodUid;

/// An error because of which it cannot be determined whether a request is authorized.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(
        "the container requests devices, but the kubelet's record of allocated devices, {}, cannot \
         be used",
        path.display()
    )]
    UnusableKubeletFile {
        path: PathBuf,
        #[source]
        error: CheckpointError,
    },
    /// A CDI specification grants a device of a resource claim, but the name of the device is not a
    /// device id. `boathook-dra`, which writes these specifications, uses only device ids.
    #[error(
        "a CDI specification grants `{name}` of {class} for a resource claim, and this is not the \
         id of a device: delete the pod, so that the claim is prepared again"
    )]
    InvalidClaimDeviceId {
        class: ClassName,
        name: String,
        #[source]
        error: NameError,
    },
}

/// Collects the properties of a container that affect the authorization of its requests.
/// `class_patterns` are the `trusted_pods` of the class. `origin` is `None` if it is uncertain.
pub(crate) fn collect_container_properties(
    bundle: &Bundle,
    origin: Option<&ContainerOrigin>,
    class_patterns: &[PodPattern],
    trust: &Trust,
) -> ContainerProperties {
    let is_trusted = |pod: &origin::Pod| {
        let mut patterns = class_patterns.iter().chain(&trust.trusted_pods);
        patterns.any(|pattern| pattern.matches(&pod.namespace, &pod.name))
    };
    let mut keys = bundle.annotations.keys();
    ContainerProperties {
        origin: match origin {
            Some(ContainerOrigin::NoPod) => OriginKind::NoPod,
            Some(ContainerOrigin::Sandbox) => OriginKind::Sandbox,
            Some(ContainerOrigin::Pod(_)) => OriginKind::Pod,
            None => OriginKind::Uncertain,
        },
        has_request_hook: bundle.hooks.reads_requests(None),
        allows_variable_requests: trust.allow_env_outside_kubernetes,
        is_trusted: matches!(origin, Some(ContainerOrigin::Pod(pod)) if is_trusted(pod)),
        has_cdi_annotation: keys.any(|key| key.starts_with(cdi::ANNOTATION_PREFIX)),
        has_sys_admin: bundle.has_sys_admin,
    }
}

/// Carries out `decision`: returns who authorizes the request, or the reason why nobody does. If
/// `decision` depends on the kubelet, reads the kubelet's checkpoints. Returns `None` if the
/// request is ignored.
pub(crate) fn determine_authority(
    decision: Decision,
    origin: &ContainerOrigin,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
) -> Result<Option<Authority>, TrustError> {
    let deny_request = |reason, is_refused| {
        let reason = describe_reason(reason, origin);
        Ok(Some(Authority::Nobody { reason, is_refused }))
    };
    match decision {
        Decision::Ignored => Ok(None),
        Decision::Request {
            reason,
            allows_trusted_capabilities,
        } => Ok(Some(Authority::Requester {
            reason: describe_reason(reason, origin),
            allows_trusted_capabilities,
        })),
        Decision::KubeletCheckpoints(checkpoint_rule, claim_selection) => match origin {
            ContainerOrigin::Pod(pod) => {
                let recorded_devices = read_recorded_devices(
                    pod,
                    checkpoint_rule,
                    claim_selection,
                    class,
                    bundle,
                    trust,
                );
                Ok(Some(Authority::Kubelet(recorded_devices?)))
            }
            ContainerOrigin::NoPod | ContainerOrigin::Sandbox => {
                deny_request(DecisionReason::Uncertain, true)
            }
        },
        Decision::NoDevice(reason) => deny_request(reason, false),
        Decision::Refused(reason) => deny_request(reason, true),
    }
}

fn describe_reason(reason: DecisionReason, origin: &ContainerOrigin) -> String {
    match (reason, origin) {
        (DecisionReason::TrustedPod, ContainerOrigin::Pod(pod)) => {
            return format!("trusted_pods in the configuration names this {pod}");
        }
        (DecisionReason::TrustedPod, _) => "trusted_pods in the configuration names it",
        (DecisionReason::NoPod, _) => "outside Kubernetes the variable is enough",
        (DecisionReason::NotAllowed, _) => {
            "the configuration has allow_env_outside_kubernetes = false"
        }
        (DecisionReason::Sandbox, _) => "it is the pod's sandbox, which uses none",
        (DecisionReason::CdiSpecification, _) => {
            "a CDI specification grants the devices, and only root can write one"
        }
        (DecisionReason::Administrator, _) => "`boathook attach` by the host's administrator",
        (DecisionReason::Force, _) => "`boathook attach --force`, beside the kubelet's record",
        (DecisionReason::Uncertain, _) => "it is not certain whether the container is a pod's",
    }
    .to_owned()
}

/// Reads the kubelet's checkpoints. Returns the devices that the kubelet allocated to the container
/// of `pod`. They are compared with the request later, because the request may use other names for
/// the devices.
fn read_recorded_devices(
    pod: &origin::Pod,
    checkpoint_rule: UnrecordedDevicesRule,
    claim_selection: AcceptedClaims,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
) -> Result<CheckpointDevices, TrustError> {
    let path = &trust.kubelet_checkpoint;
    let mut recorded_devices = CheckpointDevices {
        holder: pod.to_string(),
        checkpoint_rule,
        ..CheckpointDevices::default()
    };
    match KubeletCheckpoint::read(path) {
        Ok(checkpoint) => {
            recorded_devices.devices =
                find_allocated_devices(&checkpoint, &pod.uid, &pod.container);
        }
        Err(error) if error.is_absent() => {
            recorded_devices.missing_checkpoint_path = Some(path.clone())
        }
        Err(error) => {
            let path = path.clone();
            return Err(TrustError::UnusableKubeletFile { path, error });
        }
    }
    let is_claims_file_optional = match claim_selection {
        AcceptedClaims::None => return Ok(recorded_devices),
        AcceptedClaims::Recorded => false,
        AcceptedClaims::AllWithoutCheckpoint => true,
    };
    let (claim_names, claimed_ids) =
        read_recorded_claims(class, bundle, pod, trust, is_claims_file_optional)?;
    recorded_devices.claimed_devices = BTreeMap::from([(class.clone(), claimed_ids)]);
    recorded_devices.claims = claim_names;
    Ok(recorded_devices)
}

/// Returns the names of the resource claims that the kubelet prepared for `pod`, and the ids of
/// their devices. Only claims that CDI specifications name count; without any, the kubelet's
/// checkpoint of claims is not read. If the checkpoint does not exist, accepts all claims if
/// `is_claims_file_optional` is true, and otherwise none.
fn read_recorded_claims(
    class: &ClassName,
    bundle: &Bundle,
    pod: &origin::Pod,
    trust: &Trust,
    is_claims_file_optional: bool,
) -> Result<(BTreeSet<String>, BTreeSet<DeviceId>), TrustError> {
    let mut grants = bundle
        .cdi_grants
        .iter()
        .filter(|grant| grant.class == *class)
        .filter_map(|grant| Some((grant, grant.claim_uid.as_ref()?)))
        .peekable();
    let (mut claim_names, mut claimed_ids) = Default::default();
    if grants.peek().is_none() {
        return Ok((claim_names, claimed_ids));
    }
    // The checkpoint of claims is in the kubelet's root directory. This is the parent of the
    // directory that contains the checkpoint of device plugins.
    let kubelet_root = trust.kubelet_checkpoint.ancestors().nth(2);
    let path = kubelet_root
        .unwrap_or(Path::new("/"))
        .join(CLAIMS_FILE_NAME);
    let kubelet_claims = match KubeletClaims::read(&path) {
        Ok(kubelet_claims) => Some(kubelet_claims),
        Err(error) if error.is_absent() && is_claims_file_optional => None,
        Err(error) if error.is_absent() => return Ok((claim_names, claimed_ids)),
        Err(error) => return Err(TrustError::UnusableKubeletFile { path, error }),
    };
    for (grant, claim_uid) in grants {
        let is_uid_of_pod = |uid: &str| PodUid::parse(uid).as_ref() == Some(&pod.uid);
        let claim_name = match &kubelet_claims {
            None => Some(claim_uid.clone()),
            Some(kubelet_claims) => kubelet_claims.find_claim_of_pod(claim_uid, is_uid_of_pod),
        };
        if let Some(name) = claim_name {
            claim_names.insert(name);
            for item in grant.devices.items() {
                claimed_ids.insert(parse_claimed_id(class, item)?);
            }
        }
    }
    Ok((claim_names, claimed_ids))
}

fn parse_claimed_id(class: &ClassName, item: &DeviceListItem) -> Result<DeviceId, TrustError> {
    let name = item.to_text();
    DeviceId::try_from(name).map_err(|error| TrustError::InvalidClaimDeviceId {
        class: class.clone(),
        name: excerpt(&item.to_text()),
        error,
    })
}
