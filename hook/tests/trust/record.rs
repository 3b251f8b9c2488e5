//! The kubelet's record as it may be found.

use std::fs;

use serde_json::{Value, json};

use crate::host::{CONTAINERD, CRIO, FIRST, Host, annotate, set_env};

#[test]
fn an_unusable_record_stops_only_containers_that_ask() {
    let mut host = Host::new(CONTAINERD);
    let whole = fs::read(&host.trust.kubelet_checkpoint).unwrap();
    let mut large = whole.clone();
    large.resize(50 << 20, b' ');
    for (record, reason) in [
        (
            &whole[..whole.len() / 2],
            "cannot be used: it has an unknown format: EOF",
        ),
        (
            b"".as_slice(),
            "cannot be used: it has an unknown format: EOF",
        ),
        (b"[]".as_slice(), "cannot be used: it has an unknown format"),
        (&large, "cannot be used: it is larger than 16777216 bytes"),
    ] {
        host.checkpoint(record);
        let error = host.start(&host.config()).unwrap_err();
        assert!(error.contains(reason), "{error}");
        let mut silent = host.config();
        set_env(&mut silent, "void");
        assert_eq!(host.start(&silent).unwrap().0.len(), 0);
    }
    host.trust.kubelet_checkpoint = host.root.path().into();
    let error = host.start(&host.config()).unwrap_err();
    assert!(
        error.contains("cannot be read: it is a directory, not a regular file"),
        "{error}"
    );
}

/// The kubelet writes its record with the first allocation on the node: before,
/// an image that requests all devices is no reason not to start.
#[test]
fn without_a_record_only_an_annotated_container_is_refused() {
    let annotation = "devices.boathook.dev/npu";
    for recording in [CONTAINERD, CRIO] {
        let mut host = Host::new(recording);
        host.trust.kubelet_checkpoint = host.root.path().join("absent/checkpoint");
        let (devices, warnings, text) = host.start(&host.config()).unwrap();
        assert_eq!((devices.len(), warnings), (0, 1), "{text}");
        assert!(text.contains("the kubelet has no record "), "{text}");
        assert!(text.contains("set trust.kubelet_checkpoint"), "{text}");

        let mut config = host.config();
        annotate(recording, &mut config, annotation, FIRST);
        let error = host.start(&config).unwrap_err();
        assert!(error.contains("were allocated to container c"), "{error}");
        assert!(error.contains("the kubelet has no record "), "{error}");
        annotate(recording, &mut config, annotation, "void");
        assert_eq!(host.start(&config).unwrap().0.len(), 0, "{recording}");
    }
}

/// The record is there, and of an allocation that the annotation tells it has
/// nothing.
#[test]
fn an_annotated_container_that_is_not_recorded_is_refused() {
    let mut host = Host::new(CONTAINERD);
    host.checkpoint(r#"{"Data":{"PodDeviceEntries":[]}}"#);
    let mut config = host.config();
    annotate(CONTAINERD, &mut config, "devices.boathook.dev/npu", FIRST);
    let error = host.start(&config).unwrap_err();
    assert!(error.contains("but the kubelet recorded none"), "{error}");
}

#[test]
fn a_record_with_hostile_strings_gives_only_what_is_a_device() {
    let mut host = Host::new(CONTAINERD);
    let hostile = [
        "../../sda",
        "a/b",
        "a\0b",
        "a\nb",
        &"x".repeat(10_240),
        "all",
        FIRST,
    ];
    let uid = "7c7dd54d-787e-4d2a-16bb-d8e6ec744689";
    let entry = |resource: &str, ids: Value| {
        json!({"PodUID": uid, "ContainerName": "c", "ResourceName": resource, "DeviceIDs": ids,
               "AllocResp": "", "More": {}})
    };
    let text = json!({"Data": {"PodDeviceEntries": [
        entry("../etc/passwd", json!({"0": ["x"]})),
        entry("other.com/thing", json!({"0": hostile})),
        entry("vendor.com/npu", json!([FIRST])),
    ]}, "Checksum": "any", "Version": 9});
    host.checkpoint(text.to_string());
    assert_eq!(host.start(&host.config()).unwrap().0, [FIRST]);

    // `all` is no id that a device has: the container was promised it.
    let text =
        json!({"Data": {"PodDeviceEntries": [entry("vendor.com/npu", json!({"0": hostile}))]}});
    host.checkpoint(text.to_string());
    let error = host.start(&host.config()).unwrap_err();
    assert!(
        error.starts_with("env VISIBLE=all: device all of class npu was allocated"),
        "{error}"
    );
}

#[test]
fn a_full_node_is_read_in_no_time() {
    let mut host = Host::new(CONTAINERD);
    let mut entries: Vec<Value> = (0..110)
        .map(|pod| {
            let ids: Vec<String> = (0..16)
                .map(|n| format!("npu-{pod}-{n}-of-a-usual-length"))
                .collect();
            json!({"PodUID": format!("{pod:032x}"), "ContainerName": "c",
                   "ResourceName": "vendor.com/npu", "DeviceIDs": {"0": ids},
                   "AllocResp": "A".repeat(1500)})
        })
        .collect();
    entries.push(
        json!({"PodUID": "7c7dd54d787e4d2a16bbd8e6ec744689", "ContainerName": "c",
                        "ResourceName": "vendor.com/npu", "DeviceIDs": {"0": [FIRST]}}),
    );
    host.checkpoint(json!({"Data": {"PodDeviceEntries": entries}}).to_string());
    let start = std::time::Instant::now();
    assert_eq!(host.start(&host.config()).unwrap().0, [FIRST]);
    // About a millisecond when built for release; here unoptimised and on a busy machine.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
