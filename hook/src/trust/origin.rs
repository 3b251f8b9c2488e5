//! Where a container comes from, by what its user can't forge.
//!
//! containerd sets its own annotations last, after any of the user's. CRI-O
//! copies the pod's annotations, which users write, among the container's, and
//! then its own over them. So on CRI-O's hosts a user can write containerd's;
//! and CRI-O's on those of containerd, where the handler lets them pass
//! (`pod_annotations`). Whoever has both wrote one of them.

use std::collections::BTreeMap;
use std::fmt;

use device_class::name::excerpt;
use device_class::request::ANNOTATION_PREFIX;
use serde::Deserialize;

use super::PodUid;
use crate::oci::Bundle;

/// Where a container comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Somebody with the right to start containers on the host.
    NoPod,
    /// A pod's sandbox.
    Sandbox,
    /// A pod.
    Pod(Pod),
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// The pod's uid.
    pub uid: PodUid,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The container's name in the pod.
    pub container: String,
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pod {
            uid,
            namespace,
            name,
            container,
        } = self;
        write!(f, "container {container} of pod {namespace}/{name} ({uid})")
    }
}

/// Why a container's origin can't be told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The cgroup is a pod's, but nothing says which container this is.
    #[error(
        "the container is in the pod {0}, but its engine does not say which of the pod's \
         containers it is; known are containerd and CRI-O"
    )]
    NoName(PodUid),
    /// The engine says it is a pod's, but not which.
    #[error("the engine says that the container is a pod's, but not which pod's")]
    NoUid,
    /// The engine and the kubelet disagree.
    #[error("the engine names the pod {annotated}, but the cgroup is that of the pod {of_cgroup}")]
    TwoUids {
        /// By the annotations.
        annotated: PodUid,
        /// By the cgroup.
        of_cgroup: PodUid,
    },
    /// Annotations of two engines: some of them were written by the user.
    #[error(
        "the container has annotations of both containerd ({CRI_TYPE}) and CRI-O ({CRIO_TYPE}); \
         its user wrote one of them, which is no way to get a device"
    )]
    TwoEngines,
    /// An annotation of the engine is not of the known form.
    #[error("annotation {key} is not of the known form: `{}`", excerpt(value))]
    Malformed {
        /// Its key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// The labels that CRI-O keeps as JSON; the kubelet sets them.
const CRIO_LABELS: &str = "io.kubernetes.cri-o.Labels";
/// The container's own annotations as JSON, without the pod's.
const CRIO_ANNOTATIONS: &str = "io.kubernetes.cri-o.Annotations";
const CRIO_TYPE: &str = "io.kubernetes.cri-o.ContainerType";
const CRI_TYPE: &str = "io.kubernetes.cri.container-type";
const CRI_UID: &str = "io.kubernetes.cri.sandbox-uid";

#[derive(Deserialize)]
struct Labels {
    #[serde(rename = "io.kubernetes.container.name")]
    container: String,
    #[serde(rename = "io.kubernetes.pod.name")]
    pod: String,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    namespace: String,
    #[serde(rename = "io.kubernetes.pod.uid")]
    uid: String,
}

impl Origin {
    /// Where the container of a bundle comes from.
    ///
    /// # Errors
    /// It seems to be a pod's, but which one, or which of its containers, is
    /// not certain.
    pub fn of(bundle: &Bundle) -> Result<Self, OriginError> {
        let of_cgroup = bundle
            .cgroups_path
            .as_deref()
            .and_then(PodUid::in_cgroups_path);
        let kind = |key| bundle.annotations.get(key).map(String::as_str);
        let origin = match (kind(CRIO_TYPE), kind(CRI_TYPE)) {
            (Some(_), Some(_)) => return Err(OriginError::TwoEngines),
            (Some(kind), None) => of_crio(kind, bundle)?,
            (None, Some(kind)) => of_containerd(kind, bundle, of_cgroup.as_ref())?,
            (None, None) => Origin::NoPod,
        };
        match (&origin, of_cgroup) {
            (Origin::NoPod, Some(uid)) => Err(OriginError::NoName(uid)),
            (Origin::Pod(pod), Some(of_cgroup)) if pod.uid != of_cgroup => {
                Err(OriginError::TwoUids {
                    annotated: pod.uid.clone(),
                    of_cgroup,
                })
            }
            _ => Ok(origin),
        }
    }
}

fn of_crio(kind: &str, bundle: &Bundle) -> Result<Origin, OriginError> {
    if kind == "sandbox" {
        return Ok(Origin::Sandbox);
    }
    let value = bundle
        .annotations
        .get(CRIO_LABELS)
        .ok_or(OriginError::NoUid)?;
    let malformed = || OriginError::Malformed {
        key: CRIO_LABELS,
        value: value.clone(),
    };
    let labels: Labels = serde_json::from_str(value).map_err(|_| malformed())?;
    Ok(Origin::Pod(Pod {
        uid: PodUid::parse(&labels.uid).ok_or_else(malformed)?,
        namespace: labels.namespace,
        name: labels.pod,
        container: labels.container,
    }))
}

fn of_containerd(
    kind: &str,
    bundle: &Bundle,
    of_cgroup: Option<&PodUid>,
) -> Result<Origin, OriginError> {
    if kind == "sandbox" {
        return Ok(Origin::Sandbox);
    }
    let annotation = |key: &str| bundle.annotations.get(key).cloned();
    // containerd 1.6 does not say the uid.
    let uid = match annotation(CRI_UID) {
        None => of_cgroup.cloned().ok_or(OriginError::NoUid)?,
        Some(value) => PodUid::parse(&value).ok_or(OriginError::Malformed {
            key: CRI_UID,
            value,
        })?,
    };
    let named = |key| annotation(key).unwrap_or_default();
    Ok(Origin::Pod(Pod {
        uid,
        namespace: named("io.kubernetes.cri.sandbox-namespace"),
        name: named("io.kubernetes.cri.sandbox-name"),
        container: named("io.kubernetes.cri.container-name"),
    }))
}

/// The annotations by which a container may ask, without those that only the
/// pod's author wrote.
///
/// # Errors
/// CRI-O's own record of them is not of the known form.
pub(crate) fn own_annotations(bundle: &Bundle) -> Result<BTreeMap<String, String>, OriginError> {
    let mut own = match bundle.annotations.get(CRIO_ANNOTATIONS) {
        None => bundle.annotations.clone(),
        Some(value) => serde_json::from_str(value).map_err(|_| OriginError::Malformed {
            key: CRIO_ANNOTATIONS,
            value: value.clone(),
        })?,
    };
    own.retain(|key, _| key.starts_with(ANNOTATION_PREFIX));
    Ok(own)
}
