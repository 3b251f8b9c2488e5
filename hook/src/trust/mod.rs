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

/// Who authorizes devices that CDI specifications grant. Only root writes
/// specifications, but the names may come from annotations, and some engines (CRI-O)
/// mix the pod's own and those of a restored image into those of its containers. There
/// the kubelet's records count, of allocated devices and of claims, whatever the
/// annotations name: one device has several names in a specification.
pub(crate) fn cdi_authority(
    origin: &Origin,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
) -> Result<Authority, TrustError> {
    let mut keys = bundle.annotations.keys();
    let is_annotated = keys.any(|key| key.starts_with(cdi::ANNOTATION_PREFIX));
    match origin {
        Origin::Pod(_) if is_annotated => recorded(origin, class, bundle, trust),
        Origin::Sandbox => authority(origin, trust),
        Origin::Pod(_) | Origin::NoPod => {
            let claims = match origin {
                Origin::Pod(pod) => claimed(class, bundle, pod, trust).unwrap_or_default().0,
                _ => BTreeSet::new(),
            };
            let of_claims = match claims.is_empty() {
                true => String::new(),
                false => format!(
                    " of resource claim {}",
                    Vec::from_iter(claims).join(" and ")
                ),
            };
            Ok(Authority::Asker {
                why: format!(
                    "a CDI specification{of_claims} grants the devices, and only root can write one"
                ),
            })
        }
    }
}

/// Who authorizes devices by the kubelet's records, of allocated devices, and of the claims
/// that CDI specifications name for the container.
pub(crate) fn recorded(
    origin: &Origin,
    class: &ClassName,
    bundle: &Bundle,
    trust: &Trust,
) -> Result<Authority, TrustError> {
    let mut authority = authority(origin, trust)?;
    if let (Origin::Pod(pod), Authority::Kubelet(recorded)) = (origin, &mut authority) {
        let (claims, claimed) = claimed(class, bundle, pod, trust)?;
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
        Ok(record) => record,
        Err(error) if error.is_absent() => return Ok((claims, claimed)),
        Err(error) => return Err(TrustError { path, error }),
    };
    for (grant, claim) in grants {
        let is_pod = |uid: &str| PodUid::parse(uid).as_ref() == Some(&pod.uid);
        if let Some(name) = record.held_by(claim, is_pod) {
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
