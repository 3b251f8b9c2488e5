//! Determines the origin of a container, which is a pod or a user of the host. Trusts only data
//! that neither the author of the container's image nor the author of a pod can write.
//!
//! The kubelet writes the uid of a pod into the path of its containers' cgroups. An annotation
//! alone proves nothing: podman copies annotations from the manifest of an image into config.json,
//! and CRI-O copies them from the pod. The engine's annotations about a container are trusted only
//! if the path of its cgroup contains a pod's uid. If an annotation contains a uid too, the two
//! must be equal.

use std::collections::BTreeMap;
use std::fmt;

use device_class::name::excerpt;
use injection_plan::request::ANNOTATION_PREFIX;
use serde::Deserialize;

use super::PodUid;
use crate::oci::Bundle;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerOrigin {
    /// The container is not part of a pod: a user of the host started it.
    NoPod,
    /// The container is the sandbox container of a pod, which holds the pod's namespaces.
    Sandbox,
    /// The container is one of the containers that the pod defines.
    Pod(Pod),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub(super) uid: PodUid,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) container: String,
    /// The annotations that the device plugin returned to the kubelet. The engine copied them to
    /// config.json.
    annotations: BTreeMap<String, String>,
}

impl Pod {
    /// Returns whether this pod has the given name in the form `NAMESPACE/NAME`, such as
    /// `kube-system/npu-test`.
    pub fn has_name(&self, namespace_and_name: &str) -> bool {
        namespace_and_name.split_once('/') == Some((&self.namespace, &self.name))
    }

    /// Returns the pod's name in the form `NAMESPACE/NAME`, and the name of the container.
    pub fn pod_and_container_names(&self) -> (String, String) {
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

/// The reason why it is uncertain whether a container belongs to a pod. Such a container gets no
/// device.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    #[error(
        "the container's annotations name a pod, but its cgroup path `{}` does not contain the \
         pod's uid; the kubelet writes it there unless it runs with cgroupsPerQOS = false",
        excerpt(.0)
    )]
    UnconfirmedPod(String),
    #[error(
        "the container is in the cgroup of the pod {0}, but no annotation of its engine names \
         the pod's container; supported are containerd and CRI-O"
    )]
    MissingContainerName(PodUid),
    #[error(
        "the engine names the pod {annotated_uid}, but the cgroup is that of the pod {cgroup_uid}"
    )]
    ConflictingUids {
        /// The pod uid in an annotation of the engine.
        annotated_uid: PodUid,
        /// The pod uid in the path of the container's cgroup.
        cgroup_uid: PodUid,
    },
    /// Two annotations contradict each other about a label of the kubelet, so one is forged. CRI-O
    /// writes all labels into one annotation, and each label also into its own annotation. An image
    /// from which a container is restored can overwrite only the annotation with all labels.
    #[error(
        "the annotation {key} is `{}` and in {CRIO_LABELS_KEY} `{}`, and CRI-O writes the same: one \
         of the two is forged",
        excerpt(annotation_value),
        excerpt(label)
    )]
    ConflictingLabels {
        key: &'static str,
        annotation_value: String,
        label: String,
    },
    #[error(
        "the container has annotations of both containerd ({CRI_CONTAINER_TYPE_KEY}) and CRI-O ({CRIO_CONTAINER_TYPE_KEY}), \
         and its engine is one of the two: the other annotations are forged"
    )]
    ConflictingEngines,
    #[error(
        "the engine's annotation {key} is missing or malformed: `{}`",
        excerpt(value)
    )]
    Malformed { key: &'static str, value: String },
}

/// The annotation that contains all labels of the kubelet as JSON. CRI-O writes it first, and the
/// image of a checkpoint can replace it. After that, CRI-O writes each label into an annotation of
/// its own, which an image cannot replace.
const CRIO_LABELS_KEY: &str = "io.kubernetes.cri-o.Labels";
/// The annotation in which CRI-O writes the annotations of the container itself as JSON. They do
/// not include the annotations of the pod, which its author can write.
const CRIO_ANNOTATIONS_KEY: &str = "io.kubernetes.cri-o.Annotations";
const CRIO_CONTAINER_TYPE_KEY: &str = "io.kubernetes.cri-o.ContainerType";
const CRI_CONTAINER_TYPE_KEY: &str = "io.kubernetes.cri.container-type";
const CRI_POD_UID_KEY: &str = "io.kubernetes.cri.sandbox-uid";

const POD_UID_KEY: &str = "io.kubernetes.pod.uid";
const POD_NAMESPACE_KEY: &str = "io.kubernetes.pod.namespace";
const POD_NAME_KEY: &str = "io.kubernetes.pod.name";
const CONTAINER_NAME_KEY: &str = "io.kubernetes.container.name";

impl ContainerOrigin {
    pub fn from_bundle(bundle: &Bundle) -> Result<Self, OriginError> {
        let cgroup_path = bundle.cgroups_path.as_deref().unwrap_or_default();
        if is_podman_cgroup(cgroup_path) {
            return Ok(ContainerOrigin::NoPod);
        }
        let Some(uid) = PodUid::from_cgroups_path(cgroup_path) else {
            return find_origin_without_pod_uid(cgroup_path, bundle);
        };
        let container_type = |key| bundle.annotations.get(key).map(String::as_str);
        match (
            container_type(CRIO_CONTAINER_TYPE_KEY),
            container_type(CRI_CONTAINER_TYPE_KEY),
        ) {
            (Some(_), Some(_)) => Err(OriginError::ConflictingEngines),
            (Some("sandbox"), None) | (None, Some("sandbox")) => Ok(ContainerOrigin::Sandbox),
            (Some(_), None) => parse_crio_pod(bundle, uid).map(ContainerOrigin::Pod),
            (None, Some(_)) => parse_containerd_pod(bundle, uid).map(ContainerOrigin::Pod),
            (None, None) => Err(OriginError::MissingContainerName(uid)),
        }
    }

    /// Returns the annotations of the container that may request devices. The device plugin sent
    /// them to the kubelet in its response to `Allocate`. Returns `None` outside of pods and for a
    /// sandbox.
    pub(crate) fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            ContainerOrigin::Pod(pod) => Some(&pod.annotations),
            ContainerOrigin::NoPod | ContainerOrigin::Sandbox => None,
        }
    }
}

/// Returns whether a container of uncertain origin may have annotations of the device plugin, so
/// that it must be refused. If the engine is CRI-O, only the annotations of the container itself
/// count, because the pod's author can write the others.
pub fn may_have_plugin_annotations(bundle: &Bundle) -> bool {
    match bundle.annotations.get(CRIO_ANNOTATIONS_KEY) {
        Some(json) => json.contains(ANNOTATION_PREFIX),
        None => {
            let mut keys = bundle.annotations.keys();
            keys.any(|key| key.starts_with(ANNOTATION_PREFIX))
        }
    }
}

/// Returns the origin of a container whose cgroup path contains no pod uid. Such a container
/// belongs to no pod, except if the kubelet has `cgroupsPerQOS = false` and writes no uids into
/// paths. Outside of pods, a container may get all devices that it requests. So annotations of a
/// pod are an error here.
fn find_origin_without_pod_uid(
    cgroup_path: &str,
    bundle: &Bundle,
) -> Result<ContainerOrigin, OriginError> {
    let mut pod_annotation_keys = [CRI_CONTAINER_TYPE_KEY, CRI_POD_UID_KEY, CRIO_LABELS_KEY].iter();
    if pod_annotation_keys.any(|key| bundle.annotations.contains_key(*key)) {
        Err(OriginError::UnconfirmedPod(cgroup_path.to_owned()))
    } else {
        Ok(ContainerOrigin::NoPod)
    }
}

/// Returns whether podman chose the cgroup path, so that the container does not belong to a pod of
/// Kubernetes. The path is `…/libpod-ID`, `…/libpod-payload-ID`, or with systemd `SLICE:libpod:ID`.
/// Users of podman can choose only the text before `libpod`.
fn is_podman_cgroup(cgroup_path: &str) -> bool {
    let last_component = cgroup_path.rsplit('/').next().unwrap_or_default();
    last_component.starts_with("libpod-") || cgroup_path.split(':').nth(1) == Some("libpod")
}

fn parse_crio_pod(bundle: &Bundle, cgroup_uid: PodUid) -> Result<Pod, OriginError> {
    let labels: BTreeMap<String, String> = parse_json(bundle, CRIO_LABELS_KEY)?.unwrap_or_default();
    let read_label = |key: &'static str| {
        let annotation_value = bundle.annotations.get(key).cloned().unwrap_or_default();
        let label = labels.get(key).cloned().unwrap_or_default();
        if annotation_value != label {
            Err(OriginError::ConflictingLabels {
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
    let annotations = parse_json(bundle, CRIO_ANNOTATIONS_KEY)?.unwrap_or_default();
    Ok(Pod {
        uid: check_pod_uid(CRIO_LABELS_KEY, &read_label(POD_UID_KEY)?, cgroup_uid)?,
        namespace: read_label(POD_NAMESPACE_KEY)?,
        name: read_label(POD_NAME_KEY)?,
        container: read_label(CONTAINER_NAME_KEY)?,
        annotations: retain_plugin_annotations(annotations),
    })
}

fn parse_containerd_pod(bundle: &Bundle, cgroup_uid: PodUid) -> Result<Pod, OriginError> {
    // containerd 1.6 writes no annotation that contains the pod's uid.
    let uid = match bundle.annotations.get(CRI_POD_UID_KEY) {
        None => cgroup_uid,
        Some(annotated_uid) => check_pod_uid(CRI_POD_UID_KEY, annotated_uid, cgroup_uid)?,
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

/// Parses the JSON in the annotation `key`. Returns `None` if the annotation is missing or is
/// `null`, and an error if it has another format.
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

fn check_pod_uid(
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
        Err(OriginError::ConflictingUids {
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
