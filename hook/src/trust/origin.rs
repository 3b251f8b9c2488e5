//! Determines the origin of a container from data that neither the author of its image nor the
//! author of a pod can write.
//!
//! The kubelet writes the uid of the pod into the path of the container's cgroup. An
//! annotation alone proves nothing: podman copies annotations from the manifest of an image
//! into config.json, and CRI-O copies them from the pod. The engine's annotations about the
//! container are trusted if the cgroup confirms them.

use std::collections::BTreeMap;
use std::fmt;

use device_class::name::excerpt;
use injection_plan::request::ANNOTATION_PREFIX;
use serde::Deserialize;

use super::PodUid;
use crate::oci::Bundle;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A container outside Kubernetes, of a user who may start containers on the host.
    NoPod,
    Sandbox,
    Pod(Pod),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(super) uid: PodUid,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) container: String,
    /// The annotations of the device plugin, if the engine passes them on.
    annotations: BTreeMap<String, String>,
}

impl Pod {
    /// Returns whether `text` is `NAMESPACE/NAME` of this pod.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        text.split_once('/') == Some((&self.namespace, &self.name))
    }

    /// Returns `NAMESPACE/NAME`, and the name of the container.
    pub(crate) fn names(&self) -> (String, String) {
        let [namespace, name, container] =
            [&self.namespace, &self.name, &self.container].map(|text| excerpt(text));
        (format!("{namespace}/{name}"), container)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [container, namespace, name] =
            [&self.container, &self.namespace, &self.name].map(|text| excerpt(text));
        let uid = &self.uid;
        write!(f, "container {container} of pod {namespace}/{name} ({uid})")
    }
}

/// The reason for which the origin of a container is uncertain.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    #[error(
        "the container's annotations name a pod, but its cgroup path `{}` does not contain the \
         pod's uid; the kubelet writes it there unless it runs with cgroupsPerQOS = false",
        excerpt(.0)
    )]
    Unconfirmed(String),
    #[error(
        "the container is in the cgroup of the pod {0}, but no annotation of its engine names \
         the pod's container; supported are containerd and CRI-O"
    )]
    NoName(PodUid),
    #[error("the engine names the pod {annotated}, but the cgroup is that of the pod {of_cgroup}")]
    TwoUids {
        /// The uid in the annotations.
        annotated: PodUid,
        /// The uid in the path of the cgroup.
        of_cgroup: PodUid,
    },
    /// The label and the annotation differ. CRI-O writes each label twice, and a restored
    /// image can overwrite one of them.
    #[error(
        "the annotation {key} is `{}` and in {CRIO_LABELS} `{}`, and CRI-O writes the same: one \
         of the two is forged",
        excerpt(flat),
        excerpt(label)
    )]
    TwoLabels {
        key: &'static str,
        flat: String,
        label: String,
    },
    #[error(
        "the container has annotations of both containerd ({CRI_TYPE}) and CRI-O ({CRIO_TYPE}), \
         and its engine is one of the two: the other annotations are forged"
    )]
    TwoEngines,
    #[error(
        "the engine's annotation {key} is missing or malformed: `{}`",
        excerpt(value)
    )]
    Malformed { key: &'static str, value: String },
}

/// The labels of the container as JSON, which the kubelet sets and CRI-O keeps. CRI-O writes
/// the annotations in this order: first this one, then those of a restored image, which can
/// replace it, and finally each label as an annotation of its own, which an image cannot
/// replace.
const CRIO_LABELS: &str = "io.kubernetes.cri-o.Labels";
/// The annotations of the container itself as JSON, without those of the pod.
const CRIO_ANNOTATIONS: &str = "io.kubernetes.cri-o.Annotations";
const CRIO_TYPE: &str = "io.kubernetes.cri-o.ContainerType";
const CRI_TYPE: &str = "io.kubernetes.cri.container-type";
const CRI_UID: &str = "io.kubernetes.cri.sandbox-uid";

const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_NAME: &str = "io.kubernetes.pod.name";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

impl Origin {
    pub(crate) fn from_bundle(bundle: &Bundle) -> Result<Self, OriginError> {
        let path = bundle.cgroups_path.as_deref().unwrap_or_default();
        if is_podman_cgroup(path) {
            return Ok(Origin::NoPod);
        }
        let Some(uid) = PodUid::in_cgroups_path(path) else {
            return origin_outside_pods(path, bundle);
        };
        let kind = |key| bundle.annotations.get(key).map(String::as_str);
        match (kind(CRIO_TYPE), kind(CRI_TYPE)) {
            (Some(_), Some(_)) => Err(OriginError::TwoEngines),
            (Some("sandbox"), None) | (None, Some("sandbox")) => Ok(Origin::Sandbox),
            (Some(_), None) => pod_from_crio(bundle, uid).map(Origin::Pod),
            (None, Some(_)) => pod_from_containerd(bundle, uid).map(Origin::Pod),
            (None, None) => Err(OriginError::NoName(uid)),
        }
    }

    /// Returns the annotations by which the container may request devices: those that it got
    /// from the device plugin's allocation.
    pub(crate) fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Origin::Pod(pod) => Some(&pod.annotations),
            Origin::NoPod | Origin::Sandbox => None,
        }
    }
}

/// Returns whether a container of uncertain origin may have annotations of the device plugin.
/// CRI-O also lists the annotations of the container itself, without those of the pod's
/// author.
pub(crate) fn may_be_annotated(bundle: &Bundle) -> bool {
    match bundle.annotations.get(CRIO_ANNOTATIONS) {
        Some(json) => json.contains(ANNOTATION_PREFIX),
        None => {
            let mut keys = bundle.annotations.keys();
            keys.any(|key| key.starts_with(ANNOTATION_PREFIX))
        }
    }
}

/// Returns the origin of a container whose cgroup is not that of a pod. A kubelet can be
/// configured not to write uids into the paths. Its pods must not count as containers outside
/// pods, which get all devices that they request. Annotations of a pod are therefore an error.
fn origin_outside_pods(path: &str, bundle: &Bundle) -> Result<Origin, OriginError> {
    let mut of_pods = [CRI_TYPE, CRI_UID, CRIO_LABELS].iter();
    if of_pods.any(|key| bundle.annotations.contains_key(*key)) {
        Err(OriginError::Unconfirmed(path.to_owned()))
    } else {
        Ok(Origin::NoPod)
    }
}

/// Returns whether podman chose the cgroup: `…/libpod-ID`, `…/libpod-payload-ID`, or
/// `SLICE:libpod:ID` with systemd. podman does not start pods of Kubernetes, and its users can
/// choose only the part of the path before that.
fn is_podman_cgroup(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.starts_with("libpod-") || path.split(':').nth(1) == Some("libpod")
}

fn pod_from_crio(bundle: &Bundle, of_cgroup: PodUid) -> Result<Pod, OriginError> {
    let labels: BTreeMap<String, String> = parse_json(bundle, CRIO_LABELS)?.unwrap_or_default();
    let label = |key: &'static str| {
        let written = |value: Option<&String>| value.cloned().unwrap_or_default();
        let (flat, label) = (
            written(bundle.annotations.get(key)),
            written(labels.get(key)),
        );
        match (flat == label, flat.is_empty()) {
            (true, false) => Ok(flat),
            (true, true) => Err(OriginError::Malformed { key, value: flat }),
            (false, _) => Err(OriginError::TwoLabels { key, flat, label }),
        }
    };
    let annotations = parse_json(bundle, CRIO_ANNOTATIONS)?.unwrap_or_default();
    Ok(Pod {
        uid: confirm_uid(CRIO_LABELS, &label(POD_UID)?, of_cgroup)?,
        namespace: label(POD_NAMESPACE)?,
        name: label(POD_NAME)?,
        container: label(CONTAINER_NAME)?,
        annotations: plugin_annotations(annotations),
    })
}

fn pod_from_containerd(bundle: &Bundle, of_cgroup: PodUid) -> Result<Pod, OriginError> {
    // containerd 1.6 does not write the uid.
    let uid = match bundle.annotations.get(CRI_UID) {
        None => of_cgroup,
        Some(annotated) => confirm_uid(CRI_UID, annotated, of_cgroup)?,
    };
    let named = |key| bundle.annotations.get(key).cloned().unwrap_or_default();
    Ok(Pod {
        uid,
        namespace: named("io.kubernetes.cri.sandbox-namespace"),
        name: named("io.kubernetes.cri.sandbox-name"),
        container: named("io.kubernetes.cri.container-name"),
        annotations: plugin_annotations(bundle.annotations.clone()),
    })
}

/// Parses an annotation that contains JSON. `null` counts as absent.
fn parse_json<T: for<'a> Deserialize<'a>>(
    bundle: &Bundle,
    key: &'static str,
) -> Result<Option<T>, OriginError> {
    let Some(value) = bundle.annotations.get(key) else {
        return Ok(None);
    };
    serde_json::from_str(value).map_err(|_| OriginError::Malformed {
        key,
        value: value.clone(),
    })
}

fn confirm_uid(
    key: &'static str,
    annotated: &str,
    of_cgroup: PodUid,
) -> Result<PodUid, OriginError> {
    let annotated = PodUid::parse(annotated).ok_or_else(|| OriginError::Malformed {
        key,
        value: annotated.to_owned(),
    })?;
    if annotated == of_cgroup {
        Ok(of_cgroup)
    } else {
        Err(OriginError::TwoUids {
            annotated,
            of_cgroup,
        })
    }
}

fn plugin_annotations(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.retain(|key, _| key.starts_with(ANNOTATION_PREFIX));
    annotations
}
