//! Who authorizes a request. A variable is a request, not a right: any image
//! can set it. A pod's container gets what the kubelet recorded for it;
//! elsewhere the user who starts a container already controls the host.

mod checkpoint;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod origin;
mod pod_uid;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device_class::class::PodPattern;
use device_class::config::Trust;
use device_class::name::{ClassName, DeviceId};
use injection_plan::cdi;
use injection_plan::claim_record::{ClaimRecord, FILE_NAME};
use injection_plan::plan::{Authority, Recorded};
use injection_plan::record::{Record, RecordError};

#[cfg(feature = "fuzzing")]
pub use checkpoint::fuzzing::checkpoint;
#[cfg(feature = "fuzzing")]
pub use fuzzing::forged_annotations;
pub(crate) use origin::{Origin, OriginError, may_be_annotated};

use crate::oci::Bundle;
use checkpoint::devices_of;
use pod_uid::PodUid;

/// The kubelet's record cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "the container requests devices, but the kubelet's record of allocated devices, {}, cannot \
     be used",
    path.display()
)]
pub struct TrustError {
    path: PathBuf,
    #[source]
    error: RecordError,
}

/// The container's own authority, if it is in one of these pods.
pub(crate) fn trusted(origin: &Origin, pods: &[PodPattern]) -> Option<Authority> {
    let Origin::Pod(pod) = origin else {
        return None;
    };
    let mut pods = pods.iter();
    let fits = pods.any(|pattern| pattern.fits(&pod.namespace, &pod.name));
    let why = || format!("trusted_pods in the configuration names this {pod}");
    fits.then(|| Authority::Asker { why: why() })
}

/// Who authorizes devices that a user attaches to a container that runs: the user, who
/// governs the host, but in a pod only if that is said. `None`: as if the container asked.
pub(crate) fn attaching(origin: &Origin, forced: bool) -> Option<Authority> {
    let why = match (origin, forced) {
        (Origin::NoPod, _) => "`boathook attach` by the host's administrator",
        (_, true) => "`boathook attach --force`, beside the kubelet's record",
        (_, false) => return None,
    };
    let why = why.to_owned();
    Some(Authority::Asker { why })
}

/// Who authorizes devices that CDI specifications grant. Only root writes specifications,
/// but their names may come from others: CRI-O takes them from the pod's annotations and
/// those of a restored image, containerd before 2.1.9, 2.2.5 and 2.3.2 from a restored image
/// (GHSA-33vj-92qq-66hc), where config.json does not show it. So in a pod the kubelet's
/// records count, of allocated devices and of claims, whatever named them: one device has
/// several names in a specification.
pub(crate) fn cdi_authority(
    origin: &Origin,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
) -> Result<Authority, TrustError> {
    let mut keys = bundle.annotations.keys();
    let is_annotated = keys.any(|key| key.starts_with(cdi::ANNOTATION_PREFIX));
    match origin {
        Origin::Pod(_) => by_records(origin, class, bundle, trust, !is_annotated),
        Origin::Sandbox => authority(origin, trust),
        Origin::NoPod => Ok(Authority::Asker {
            why: "a CDI specification grants the devices, and only root can write one".into(),
        }),
    }
}

/// Who authorizes devices by the kubelet's records, of allocated devices, and of the claims
/// that CDI specifications name for the container. `without_record`: claims count if there is
/// no record of any. A kubelet with another root directory has it elsewhere.
pub(crate) fn by_records(
    origin: &Origin,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
    without_record: bool,
) -> Result<Authority, TrustError> {
    let mut authority = authority(origin, trust)?;
    if let (Origin::Pod(pod), Authority::Kubelet(recorded)) = (origin, &mut authority) {
        let (claims, claimed) = claimed(class, bundle, pod, trust, without_record)?;
        recorded.claimed = BTreeMap::from([(class.clone(), claimed)]);
        recorded.claims = claims;
    }
    Ok(authority)
}

/// The claims that the kubelet recorded for the pod, and their devices. The record is read
/// only if a claim is named.
fn claimed(
    class: &ClassName,
    bundle: &Bundle,
    pod: &origin::Pod,
    trust: &Trust,
    without_record: bool,
) -> Result<(BTreeSet<String>, BTreeSet<DeviceId>), TrustError> {
    let grants = bundle.cdi.iter().filter(|grant| grant.class == *class);
    let mut grants = grants
        .filter_map(|grant| Some((grant, grant.claim.as_ref()?)))
        .peekable();
    let (mut claims, mut claimed) = Default::default();
    if grants.peek().is_none() {
        return Ok((claims, claimed));
    }
    // In the directory above that of device plugins.
    let kubelet = trust.kubelet_checkpoint.ancestors().nth(2);
    let path = kubelet.unwrap_or(Path::new("/")).join(FILE_NAME);
    let record = match ClaimRecord::read(&path) {
        Ok(record) => Some(record),
        Err(error) if error.is_absent() && without_record => None,
        Err(error) if error.is_absent() => return Ok((claims, claimed)),
        Err(error) => return Err(TrustError { path, error }),
    };
    for (grant, claim) in grants {
        let is_pod = |uid: &str| PodUid::parse(uid).as_ref() == Some(&pod.uid);
        let held = match &record {
            None => Some(claim.clone()),
            Some(record) => record.held_by(claim, is_pod),
        };
        if let Some(name) = held {
            claims.insert(name);
            let ids = grant.device.split(',').map(str::to_owned);
            claimed.extend(ids.filter_map(|id| DeviceId::try_from(id).ok()));
        }
    }
    Ok((claims, claimed))
}

/// Who authorizes the requests of a container of this origin. The kubelet's
/// record is read only if it applies.
pub(crate) fn authority(origin: &Origin, trust: &Trust) -> Result<Authority, TrustError> {
    let pod = match origin {
        Origin::Pod(pod) => pod,
        Origin::Sandbox => {
            let why = "it is the pod's sandbox, which uses none".into();
            return Ok(Authority::Nobody { why });
        }
        Origin::NoPod if trust.allow_env_outside_kubernetes => {
            let why = "the container is in no pod".into();
            return Ok(Authority::Asker { why });
        }
        Origin::NoPod => {
            let why = "the configuration has allow_env_outside_kubernetes = false".into();
            return Ok(Authority::Nobody { why });
        }
    };
    if let Some(authority) = trusted(origin, &trust.trusted_pods) {
        return Ok(authority);
    }
    let path = &trust.kubelet_checkpoint;
    let mut recorded = Recorded {
        holder: pod.to_string(),
        ..Recorded::default()
    };
    match Record::read(path) {
        Ok(record) => {
            recorded.devices = devices_of(&record, &pod.uid, &pod.container);
        }
        Err(error) if error.is_absent() => recorded.absent_file = Some(path.clone()),
        Err(error) => {
            let path = path.clone();
            return Err(TrustError { path, error });
        }
    }
    Ok(Authority::Kubelet(recorded))
}
