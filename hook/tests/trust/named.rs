//! Containers that the hook's arguments name.

use std::collections::BTreeMap;

use hook::planner::NamedContainer;
use serde_json::Value;

use crate::host::{CONTAINERD, CRIO, Host, recorded, set_env};

const OTHER_UID: &str = "11111111-2222-3333-4444-555555555555";

/// The recorded container, by the annotations of its engine.
fn named(config: &Value) -> NamedContainer {
    let annotation = |key: &str| config["annotations"][key].as_str().unwrap_or_default();
    let labels = annotation("io.kubernetes.cri-o.Labels");
    let labels: Value = serde_json::from_str(labels).unwrap_or_default();
    let either = |label: &str, key: &str| match labels[label].as_str() {
        Some(value) => value.to_owned(),
        None => annotation(key).to_owned(),
    };
    NamedContainer {
        uid: either("io.kubernetes.pod.uid", "io.kubernetes.cri.sandbox-uid"),
        namespace: either(
            "io.kubernetes.pod.namespace",
            "io.kubernetes.cri.sandbox-namespace",
        ),
        pod: either("io.kubernetes.pod.name", "io.kubernetes.cri.sandbox-name"),
        container: either(
            "io.kubernetes.container.name",
            "io.kubernetes.cri.container-name",
        ),
        annotations: BTreeMap::new(),
    }
}

#[test]
fn a_named_container_gets_what_was_recorded_without_its_engines_word() {
    for recording in [CONTAINERD, CRIO] {
        let mut host = Host::new(recording);
        let mut config = host.config();
        host.named = Some(named(&config));
        // As of a kubelet with cgroupsPerQOS = false, and of an unknown engine.
        config["linux"]["cgroupsPath"] = "/c".into();
        config["annotations"] = serde_json::json!({});
        let (devices, ..) = host.start(&config).unwrap();
        assert_eq!(devices, recorded(recording, "c"), "{recording}");
        host.named = None;
        set_env(&mut config, "all");
        host.trust.allow_env_outside_kubernetes = false;
        let (devices, ..) = host.start(&config).unwrap();
        assert!(devices.is_empty(), "{recording}");
    }
}

#[test]
fn an_annotation_in_the_arguments_is_only_a_request() {
    let mut host = Host::new(CONTAINERD);
    let mut config = host.config();
    let mine = recorded(CONTAINERD, "c");
    set_env(&mut config, "");
    let mut asking = named(&config);
    let key = "devices.boathook.dev/npu".to_owned();
    asking.annotations = BTreeMap::from([(key.clone(), mine[0].clone())]);
    host.named = Some(asking.clone());
    let (devices, ..) = host.start(&config).unwrap();
    assert_eq!(devices, mine);
    // Not recorded for that container.
    asking.container = "debugger".into();
    host.named = Some(asking);
    assert!(host.start(&config).is_err());
}

#[test]
fn the_cgroup_of_another_pod_is_a_contradiction() {
    let mut host = Host::new(CONTAINERD);
    let config = host.config();
    for (uid, reason) in [
        (OTHER_UID, "but the cgroup is that of the pod"),
        ("x", "--pod-uid is not a uid: `x`"),
    ] {
        host.named = Some(NamedContainer {
            uid: uid.into(),
            ..named(&config)
        });
        let error = host.start(&config).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}
