//! Determines the origin of a container from data that neither the author of its image nor the
//! author of a pod can write.
//!
//! The kubelet writes the uid of a pod into the path of its containers' cgroups. An annotation
//! alone proves nothing: podman copies annotations from the manifest of an image into
//! config.json, and CRI-O copies them from the pod. The annotations of an engine about a
//! container are trusted only if they have the same uid as the path of its cgroup.

use std::collections::BTreeMap;
use std::fmt;

use device_class::name::excerpt;
use injection_plan::request::ANNOTATION_PREFIX;
use serde::Deserialize;

use super::PodUid;
use crate::oci::Bundle;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The container is outside of Kubernetes: a user of the host has started it.
    NoPod,
    /// The container is the sandbox of a pod, which holds the namespaces of the pod.
    Sandbox,
    /// The container is one of the pod's own containers.
    Pod(Pod),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(super) uid: PodUid,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) container: String,
    /// The annotations that the device plugin returned to the kubelet, if the engine adds them
    /// to config.json.
    annotations: BTreeMap<String, String>,
}

impl Pod {
    /// Returns whether `text` is `NAMESPACE/NAME` of this pod.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        text.split_once('/') == Some((&self.namespace, &self.name))
    }

    /// Returns the pod's name in the form `NAMESPACE/NAME`, and the name of the container.
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
    #[error(
        "the engine names the pod {annotated_uid}, but the cgroup is that of the pod {cgroup_uid}"
    )]
    TwoUids {
        /// The uid in an annotation of the engine.
        annotated_uid: PodUid,
        /// The uid in the path of the container's cgroup.
        cgroup_uid: PodUid,
    },
    /// A label has different values in two annotations. CRI-O writes the labels of the kubelet as
    /// one annotation, and also each label as an annotation of its own. A checkpoint image, from
    /// which a container is restored, can overwrite only the first annotation.
    #[error(
        "the annotation {key} is `{}` and in {CRIO_LABELS} `{}`, and CRI-O writes the same: one \
         of the two is forged",
        excerpt(annotation_value),
        excerpt(label)
    )]
    TwoLabels {
        key: &'static str,
        annotation_value: String,
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

/// The annotation in which CRI-O writes the labels that the kubelet sets, as JSON. CRI-O then
/// adds the annotations of a checkpoint image, which can replace this one, and finally each label
/// as an annotation of its own, which an image cannot replace.
const CRIO_LABELS: &str = "io.kubernetes.cri-o.Labels";
/// The annotation in which CRI-O writes the annotations of the container as JSON, without those
/// of the pod.
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
        let Some(uid) = PodUid::from_cgroups_path(path) else {
            return check_origin_outside_pods(path, bundle);
        };
        let container_type = |key| bundle.annotations.get(key).map(String::as_str);
        match (container_type(CRIO_TYPE), container_type(CRI_TYPE)) {
            (Some(_), Some(_)) => Err(OriginError::TwoEngines),
            (Some("sandbox"), None) | (None, Some("sandbox")) => Ok(Origin::Sandbox),
            (Some(_), None) => parse_crio_pod(bundle, uid).map(Origin::Pod),
            (None, Some(_)) => parse_containerd_pod(bundle, uid).map(Origin::Pod),
            (None, None) => Err(OriginError::NoName(uid)),
        }
    }

    /// Returns the annotations by which the container may request devices. The device plugin sends
    /// them in its response to an allocation.
    pub(crate) fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Origin::Pod(pod) => Some(&pod.annotations),
            Origin::NoPod | Origin::Sandbox => None,
        }
    }
}

/// Returns whether a container of uncertain origin may have annotations of the device plugin. On
/// CRI-O only the annotations of the container itself are searched, because the author of the pod
/// can write all others.
pub(crate) fn may_be_annotated(bundle: &Bundle) -> bool {
    match bundle.annotations.get(CRIO_ANNOTATIONS) {
        Some(json) => json.contains(ANNOTATION_PREFIX),
        None => {
            let mut keys = bundle.annotations.keys();
            keys.any(|key| key.starts_with(ANNOTATION_PREFIX))
        }
    }
}

/// Returns the origin of a container whose cgroup path contains no uid of a pod. With
/// `cgroupsPerQOS = false` the kubelet writes no uids into the paths. A container of such a pod
/// must not count as one outside of Kubernetes, which gets all devices that it requests, so
/// annotations of a pod are an error.
fn check_origin_outside_pods(path: &str, bundle: &Bundle) -> Result<Origin, OriginError> {
    let mut pod_keys = [CRI_TYPE, CRI_UID, CRIO_LABELS].iter();
    if pod_keys.any(|key| bundle.annotations.contains_key(*key)) {
        Err(OriginError::Unconfirmed(path.to_owned()))
    } else {
        Ok(Origin::NoPod)
    }
}

/// Returns whether `path` is a cgroup path that podman chose: `…/libpod-ID`,
/// `…/libpod-payload-ID`, or `SLICE:libpod:ID` with systemd. podman starts no pods of Kubernetes,
/// and its users can choose only the part of the path before `libpod`.
fn is_podman_cgroup(path: &str) -> bool {
    let last_component = path.rsplit('/').next().unwrap_or_default();
    last_component.starts_with("libpod-") || path.split(':').nth(1) == Some("libpod")
}

fn parse_crio_pod(bundle: &Bundle, cgroup_uid: PodUid) -> Result<Pod, OriginError> {
    let labels: BTreeMap<String, String> = parse_json(bundle, CRIO_LABELS)?.unwrap_or_default();
    let read_label = |key: &'static str| {
        let annotation_value = bundle.annotations.get(key).cloned().unwrap_or_default();
        let label = labels.get(key).cloned().unwrap_or_default();
        if annotation_value != label {
            Err(OriginError::TwoLabels {
                key,
                annotation_value,
                label,
            })
        } else if annotation_value.is_empty() {
            Err(OriginError::Malformed {
                key,
                value: annotation_value,
            })
        } else {
            Ok(annotation_value)
        }
    };
    let annotations = parse_json(bundle, CRIO_ANNOTATIONS)?.unwrap_or_default();
    Ok(Pod {
        uid: confirm_uid(CRIO_LABELS, &read_label(POD_UID)?, cgroup_uid)?,
        namespace: read_label(POD_NAMESPACE)?,
        name: read_label(POD_NAME)?,
        container: read_label(CONTAINER_NAME)?,
        annotations: retain_plugin_annotations(annotations),
    })
}

fn parse_containerd_pod(bundle: &Bundle, cgroup_uid: PodUid) -> Result<Pod, OriginError> {
    // containerd 1.6 does not write an annotation with the uid of the pod.
    let uid = match bundle.annotations.get(CRI_UID) {
        None => cgroup_uid,
        Some(annotated_uid) => confirm_uid(CRI_UID, annotated_uid, cgroup_uid)?,
    };
    let read_annotation = |key| bundle.annotations.get(key).cloned().unwrap_or_default();
    Ok(Pod {
        uid,
        namespace: read_annotation("io.kubernetes.cri.sandbox-namespace"),
        name: read_annotation("io.kubernetes.cri.sandbox-name"),
        container: read_annotation("io.kubernetes.cri.container-name"),
        annotations: retain_plugin_annotations(bundle.annotations.clone()),
    })
}

/// Parses the JSON in the annotation `key`. Returns `None` if the annotation does not exist or is
/// `null`.
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
    annotated_uid: &str,
    cgroup_uid: PodUid,
) -> Result<PodUid, OriginError> {
    let annotated_uid = PodUid::parse(annotated_uid).ok_or_else(|| OriginError::Malformed {
        key,
        value: annotated_uid.to_owned(),
    })?;
    if annotated_uid == cgroup_uid {
        Ok(cgroup_uid)
    } else {
        Err(OriginError::TwoUids {
            annotated_uid,
            cgroup_uid,
        })
    }
}

fn retain_plugin_annotations(
    mut annotations: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    annotations.retain(|key, _| key.starts_with(ANNOTATION_PREFIX));
    annotations
}
