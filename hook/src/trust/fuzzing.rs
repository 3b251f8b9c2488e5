//! A fuzz target for forged annotations. The author of an image or of a pod can add annotations to
//! those that the engine writes.

use std::path::Path;

use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use serde_json::{Value, json};

use super::checkpoint::find_allocated_devices;
use super::origin::ContainerOrigin;
use crate::oci::Bundle;

const POD_UID: &str = "0c7b7a4e-17b7-4f3b-8d4d-8a5d3f6b1a01";
/// The annotations in which an engine names the pod and the container. Each item contains CRI-O's
/// key, containerd's key, and the value.
const POD_ANNOTATIONS: [(&str, &str, &str); 4] = [
    (
        "io.kubernetes.pod.uid",
        "io.kubernetes.cri.sandbox-uid",
        POD_UID,
    ),
    (
        "io.kubernetes.pod.namespace",
        "io.kubernetes.cri.sandbox-namespace",
        "users",
    ),
    (
        "io.kubernetes.pod.name",
        "io.kubernetes.cri.sandbox-name",
        "own",
    ),
    (
        "io.kubernetes.container.name",
        "io.kubernetes.cri.container-name",
        "main",
    ),
];

/// Tests one input. Its first line is `cri-o`, `containerd` or `containerd-1.6`. The other lines
/// are forged annotations `KEY=VALUE`. As in the real engine, some of the engine's own annotations
/// are written before the forged ones, and the others after them. A later annotation replaces an
/// earlier one with the same key. No forged annotation may have an effect. The container must be
/// refused, or must get only the devices that the kubelet allocated to it in its own pod.
pub fn forged_annotations(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let (engine, lines) = text.split_once('\n').unwrap_or((text, ""));
    let forged = lines
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), Value::from(value)));
    let is_crio = engine == "cri-o";
    let (mut annotations, cgroup) = if is_crio {
        write_early_crio_annotations()
    } else {
        (Default::default(), format!("/kubepods/pod{POD_UID}/c"))
    };
    annotations.extend(forged);
    let mut set_annotation =
        |key: &str, value: &str| annotations.insert(key.to_owned(), value.into());
    if !is_crio {
        set_annotation("io.kubernetes.cri.container-type", "container");
    }
    for (crio_key, containerd_key, value) in POD_ANNOTATIONS {
        if is_crio {
            set_annotation(crio_key, value)
        } else if value == POD_UID && engine == "containerd-1.6" {
            None
        } else {
            set_annotation(containerd_key, value)
        };
    }
    let config = json!({
        "root": {"path": "rootfs"},
        "annotations": annotations,
        "linux": {"cgroupsPath": cgroup},
    });
    let config = config.to_string();
    let bundle = Bundle::parse(Path::new("/b"), Path::new("/c"), config.as_bytes());
    match ContainerOrigin::from_bundle(&bundle.expect("written here")) {
        Err(_) | Ok(ContainerOrigin::Sandbox) => {}
        Ok(ContainerOrigin::NoPod) => panic!("the container left its pod"),
        Ok(ContainerOrigin::Pod(pod)) => {
            assert!(pod.has_name("users/own"), "{pod}");
            let devices = find_allocated_devices(&create_checkpoint(), &pod.uid, &pod.container);
            let ids: Vec<_> = devices.values().flatten().map(|id| id.as_str()).collect();
            assert_eq!(ids, ["own-0"], "{pod}");
        }
    }
}

/// Returns the annotations that CRI-O writes first, and the path of the container's cgroup. CRI-O
/// then adds the annotations of the image and of the pod, which can replace these.
fn write_early_crio_annotations() -> (serde_json::Map<String, Value>, String) {
    let labels: serde_json::Map<String, Value> = POD_ANNOTATIONS
        .into_iter()
        .map(|(key, _, value)| (key.to_owned(), value.into()))
        .collect();
    let early_annotations = [
        ("io.kubernetes.cri-o.ContainerType", "container".to_owned()),
        ("io.kubernetes.cri-o.Labels", json!(labels).to_string()),
        ("io.kubernetes.cri-o.Annotations", "{}".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value.into()));
    let slice = format!("kubepods-pod{}.slice", POD_UID.replace('-', "_"));
    (
        early_annotations.into_iter().collect(),
        format!("{slice}:crio:c"),
    )
}

/// Returns a kubelet checkpoint with allocations for the tested container, for another container in
/// the same pod, and for another pod.
fn create_checkpoint() -> KubeletCheckpoint {
    let entry = |pod: &str, container: &str, id: &str| json!({"PodUID": pod, "ContainerName": container, "ResourceName": "vendor.com/npu", "DeviceIDs": {"0": [id]}});
    let other_uid = POD_UID.replace('a', "b");
    let entries = [
        entry(POD_UID, "main", "own-0"),
        entry(POD_UID, "beside", "other-0"),
        entry(&other_uid, "main", "other-1"),
    ];
    let text = json!({"Data": {"PodDeviceEntries": entries}}).to_string();
    KubeletCheckpoint::parse(text.as_bytes()).expect("written here")
}
