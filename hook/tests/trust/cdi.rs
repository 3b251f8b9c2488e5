//! Containers whose devices CDI specifications grant.

use std::collections::BTreeMap;
use std::fs;

use device_class::config::ClassConfig;
use serde_json::{Value, json};

use crate::host::{CONTAINERD, CRIO, FIRST, Host, OTHER, annotate, recorded, set_env};

/// As an annotation of the container asks an engine for it.
const KEY: &str = "cdi.k8s.io/boathook";

fn grant(device: &str) -> String {
    format!("npu={device}")
}

#[test]
fn the_arguments_of_all_our_hooks_count_and_no_variable() {
    let host = Host::new(CONTAINERD);
    let mut config = host.config();
    // In no pod.
    config["linux"]["cgroupsPath"] = "/c".into();
    config["annotations"] = serde_json::json!({});
    set_env(&mut config, "all");
    for (grants, devices) in [
        (vec![grant(FIRST)], vec![FIRST]),
        (vec![grant(FIRST), grant(OTHER)], vec![OTHER, FIRST]),
    ] {
        let grants: Vec<&str> = grants.iter().map(String::as_str).collect();
        let (mut given, ..) = host.start_with_cdi(&grants, &config).unwrap();
        given.sort();
        let mut devices = devices;
        devices.sort_unstable();
        assert_eq!(given, devices);
    }
}

#[test]
fn a_specification_of_a_device_or_class_that_is_gone_stops_the_container() {
    let host = Host::new(CONTAINERD);
    let mut config = host.config();
    config["linux"]["cgroupsPath"] = "/c".into();
    config["annotations"] = serde_json::json!({});
    let gone = "0000000000000000000000000000000000000000";
    for (grant, reason) in [
        (grant(gone), gone),
        (
            "gpu=0".to_owned(),
            "in Kubernetes bring the class back (ConfigMap boathook-classes), or delete the pod",
        ),
    ] {
        let error = host.start_with_cdi(&[&grant], &config).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

/// `enabled = false` ends what the plugin offers. A container that was given a device before is
/// started again with it, and so is one of a host without Kubernetes.
#[test]
fn a_container_of_a_disabled_class_is_started_again_with_its_device() {
    let mut host = Host::new(CONTAINERD);
    let disabled = ClassConfig {
        is_enabled: Some(false),
        ..ClassConfig::default()
    };
    let class = "npu".to_owned().try_into().unwrap();
    host.class = BTreeMap::from([(class, disabled)]);
    let mut config = host.config();
    config["linux"]["cgroupsPath"] = "/c".into();
    config["annotations"] = serde_json::json!({});
    let (devices, ..) = host.start_with_cdi(&[&grant(FIRST)], &config).unwrap();
    assert_eq!(devices, [FIRST]);
}

#[test]
fn in_a_pod_annotated_devices_must_be_recorded() {
    for recording in [CONTAINERD, CRIO] {
        let host = Host::new(recording);
        let mine = recorded(recording, "c");
        let annotated = |device: &str, granted: &str| {
            let mut config = host.config();
            annotate(
                recording,
                &mut config,
                KEY,
                &format!("vendor.com/npu={device}"),
            );
            host.start_with_cdi(&[&grant(granted)], &config)
        };
        let (devices, ..) = annotated(&mine[0], &mine[0]).unwrap();
        assert_eq!(devices, mine, "{recording}");
        let all = [FIRST, OTHER];
        let foreign = all.iter().find(|id| !mine.contains(&(**id).to_owned()));
        let foreign = foreign.unwrap();
        // A specification has the device under its index, too.
        for name in [*foreign, "0"] {
            let error = annotated(name, foreign).unwrap_err();
            assert!(
                error.contains("did not record all devices"),
                "{recording}: {error}"
            );
        }
        // As specifications of older releases grant it, and those of today.
        for granted in ["all".to_owned(), all.join(",")] {
            assert!(annotated("all", &granted).is_err(), "{recording}");
        }
        // By the CRI's field alone, which an engine may fill in from an image.
        let by_field = |device: &str| host.start_with_cdi(&[&grant(device)], &host.config());
        let error = by_field(foreign).unwrap_err();
        assert!(error.contains("did not record all devices"), "{error}");
        assert_eq!(by_field(&mine[0]).unwrap().0, mine, "{recording}");
    }
}

/// A pod with a device by the plugin, which brings an annotation, and one by a claim.
#[test]
fn a_claims_devices_count_beside_recorded_ones_for_the_pods_that_have_it() {
    for recording in [CONTAINERD, CRIO] {
        let mut host = Host::new(recording);
        let kubelet = host.root.path().join("kubelet");
        fs::create_dir_all(kubelet.join("device-plugins")).unwrap();
        let checkpoint = kubelet.join("device-plugins/checkpoint");
        fs::copy(&host.trust.kubelet_checkpoint, &checkpoint).unwrap();
        let record: Value = serde_json::from_slice(&fs::read(&checkpoint).unwrap()).unwrap();
        let entries = record["Data"]["PodDeviceEntries"].as_array().unwrap();
        let own = entries
            .iter()
            .find(|one| one["ContainerName"] == "c")
            .unwrap();
        let pod = own["PodUID"].as_str().unwrap();
        host.trust.kubelet_checkpoint = checkpoint;
        let mine = recorded(recording, "c");
        let foreign = [FIRST, OTHER]
            .into_iter()
            .find(|id| !mine.contains(&(*id).to_owned()));
        let foreign = foreign.unwrap();
        let start = |claims: Value| {
            let data = json!({"ClaimInfoStateList": claims}).to_string();
            let state = json!({"Data": data, "Checksum": 1}).to_string();
            fs::write(kubelet.join("dra_manager_state"), state).unwrap();
            let mut config = host.config();
            annotate(
                recording,
                &mut config,
                KEY,
                &format!("vendor.com/npu={}", mine[0]),
            );
            let claimed = format!("{}@u-1", grant(foreign));
            host.start_with_cdi(&[&grant(&mine[0]), &claimed], &config)
        };
        let claim = |uid: &str, pod: &str| json!([{"ClaimUID": uid, "ClaimName": "a", "Namespace": "n", "PodUIDs": {pod: {}}}]);
        let (mut devices, _, plan) = start(claim("u-1", pod)).unwrap();
        assert!(plan.contains("resource claim n/a"), "{plan}");
        let mut wanted = [mine.clone(), vec![foreign.to_owned()]].concat();
        devices.sort();
        wanted.sort();
        assert_eq!(devices, wanted, "{recording}");
        // As the kubelet alone asks for it, without an annotation.
        let claimed = format!("{}@u-1", grant(foreign));
        let (.., plan) = host.start_with_cdi(&[&claimed], &host.config()).unwrap();
        assert!(plan.contains("resource claim n/a"), "{plan}");
        // `boathook-dra` writes ids. What is none is not left out in silence.
        let named = format!("{}@u-1", grant("\"a b\""));
        let error = host.start_with_cdi(&[&named], &host.config()).unwrap_err();
        let reason =
            "grants `\"a b\"` of npu for a resource claim, and this is not the id of a device";
        assert!(error.contains(reason), "{recording}: {error}");
        // A pod's author names another pod's claim in an annotation, where engines mix
        // them.
        let other = "00000000-0000-4000-8000-000000000000";
        for claims in [claim("u-2", pod), claim("u-1", other), json!(null)] {
            let error = start(claims).unwrap_err();
            assert!(
                error.contains("did not record all devices"),
                "{recording}: {error}"
            );
        }
    }
}
