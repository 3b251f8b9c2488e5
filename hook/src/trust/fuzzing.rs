//! A fuzz target: annotations that the author of an image or of a pod adds to those of the
//! engine.

use std::path::Path;

use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use serde_json::{Value, json};

use super::checkpoint::devices_of;
use super::origin::Origin;
use crate::oci::Bundle;

const UID: &str = "0c7b7a4e-17b7-4f3b-8d4d-8a5d3f6b1a01";
/// The uid, namespace, name and container of the pod: the two keys and the value of each.
const POD: [(&str, &str, &str); 4] = [
    (
        "io.kubernetes.pod.uid",
        "io.kubernetes.cri.sandbox-uid",
        UID,
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

/// Tests one input: `cri-o`, `containerd` or `containerd-1.6`, followed by lines of
/// `KEY=VALUE`. Each engine accepts some annotations of others, and writes some of its own
/// later (`origin.rs`). Whatever the lines are, the container must count as one of its own pod
/// or be refused, and must get only the devices that the kubelet recorded for it.
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
        crio_before()
    } else {
        (Default::default(), format!("/kubepods/pod{UID}/c"))
    };
    annotations.extend(forged);
    let mut set = |key: &str, value: &str| annotations.insert(key.to_owned(), value.into());
    if !is_crio {
        set("io.kubernetes.cri.container-type", "container");
    }
    for (of_crio, of_containerd, value) in POD {
        if is_crio {
            set(of_crio, value)
        } else if value == UID && engine == "containerd-1.6" {
            None
        } else {
            set(of_containerd, value)
        };
    }
    let config = json!({
        "root": {"path": "rootfs"},
        "annotations": annotations,
        "linux": {"cgroupsPath": cgroup},
    });
    let config = config.to_string();
    let bundle = Bundle::parse(Path::new("/b"), Path::new("/c"), config.as_bytes());
    match Origin::from_bundle(&bundle.expect("written here")) {
        Err(_) | Ok(Origin::Sandbox) => {}
        Ok(Origin::NoPod) => panic!("the container left its pod"),
        Ok(Origin::Pod(pod)) => {
            assert!(pod.is_named("users/own"), "{pod}");
            let devices = devices_of(&record(), &pod.uid, &pod.container);
            let ids: Vec<_> = devices.values().flatten().map(|id| id.as_str()).collect();
            assert_eq!(ids, ["own-0"], "{pod}");
        }
    }
}

/// Returns the annotations that CRI-O writes before those of others.
fn crio_before() -> (serde_json::Map<String, Value>, String) {
    let labels: serde_json::Map<String, Value> = POD
        .into_iter()
        .map(|(key, _, value)| (key.to_owned(), value.into()))
        .collect();
    let before = [
        ("io.kubernetes.cri-o.ContainerType", "container".to_owned()),
        ("io.kubernetes.cri-o.Labels", json!(labels).to_string()),
        ("io.kubernetes.cri-o.Annotations", "{}".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value.into()));
    let slice = format!("kubepods-pod{}.slice", UID.replace('-', "_"));
    (before.into_iter().collect(), format!("{slice}:crio:c"))
}

/// Returns a kubelet checkpoint with allocations for the pod and for others.
fn record() -> KubeletCheckpoint {
    let entry = |pod: &str, container: &str, id: &str| json!({"PodUID": pod, "ContainerName": container, "ResourceName": "vendor.com/npu", "DeviceIDs": {"0": [id]}});
    let other = UID.replace('a', "b");
    let entries = [
        entry(UID, "main", "own-0"),
        entry(UID, "beside", "other-0"),
        entry(&other, "main", "other-1"),
    ];
    let text = json!({"Data": {"PodDeviceEntries": entries}}).to_string();
    KubeletCheckpoint::parse(text.as_bytes()).expect("written here")
}
