//! Whose word counts. A variable is a request, not a right: any image can set
//! it. In a pod only what the kubelet recorded for the container is given;
//! elsewhere, whoever starts a container rules the host anyway.

mod checkpoint;
mod origin;
mod pod_uid;

use std::io;
use std::path::PathBuf;

use device_class::config::Trust;
use device_class::plan::{Authority, Recorded};

pub use checkpoint::{Checkpoint, CheckpointError};
pub(crate) use origin::own_annotations;
pub use origin::{Origin, OriginError, Pod};
pub use pod_uid::PodUid;

/// Why nobody's word can be taken.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The kubelet's record can't be read.
    #[error(
        "the container asks for devices, but the kubelet's record of who holds which, {}, can't \
         be read: {error}; set trust.kubelet_checkpoint in the configuration if it is elsewhere",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What came of it.
        error: io::Error,
    },
    /// The kubelet's record is not of the known form.
    #[error(
        "the container asks for devices, but the kubelet's record of who holds which, {}, can't \
         be used: {error}",
        path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: CheckpointError,
    },
}

/// On whose word a container of this origin gets devices. The kubelet's record
/// is read only where it counts.
///
/// # Errors
/// The record counts, but can't be used.
pub fn authority(origin: &Origin, trust: &Trust) -> Result<Authority, TrustError> {
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
    let mut exempt = trust.trusted_pods.iter();
    if exempt.any(|pattern| pattern.fits(&pod.namespace, &pod.name)) {
        let why = format!(
            "the configuration trusts pods like {}/{}",
            pod.namespace, pod.name
        );
        return Ok(Authority::Asker { why });
    }
    let path = &trust.kubelet_checkpoint;
    let checkpoint = match Checkpoint::read(path) {
        Ok(Ok(checkpoint)) => checkpoint,
        Ok(Err(error)) => {
            let path = path.clone();
            return Err(TrustError::Unusable { path, error });
        }
        Err(error) => {
            let path = path.clone();
            return Err(TrustError::Unreadable { path, error });
        }
    };
    Ok(Authority::Kubelet(Recorded {
        holder: pod.to_string(),
        devices: checkpoint.devices_of(&pod.uid, &pod.container),
    }))
}
