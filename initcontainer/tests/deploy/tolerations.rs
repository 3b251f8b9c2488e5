//! Tests of the taints that the pods tolerate.

use std::collections::BTreeSet;
use std::fs;

use device_class::class::DeviceClass;
use harness::class_files;
use harness::manifests::{chart, repository};
use serde_json::{Value, json};

use crate::manifest::{Objects, list, pod, text};

/// The classes for which no node is tainted: those of any hardware, guests of a hypervisor, and
/// those whose resource has a number of the programmed hardware in its name.
const UNTAINTED: [&str; 28] = [
    "amd-gpu-monitoring",
    "amd-gpu-parts",
    "aws-nitro-enclaves",
    "dummy-npu",
    "enflame-gcu-monitoring",
    "hygon-dcu-monitoring",
    "iluvatar-gpu-monitoring",
    "intel-fpga-af",
    "intel-fpga-region",
    "intel-fpga-regiondevel",
    "intel-gpu-monitoring",
    "kunlunxin-xpu-monitoring",
    "kvm",
    "metax-gpu-monitoring",
    "mthreads-gpu-monitoring",
    "nvidia-gpu-monitoring",
    "nvidia-imex",
    "sev-guest",
    "sgx-enclave",
    "sgx-provision",
    "sgx-qe",
    "sgx-registration",
    "sriov-vfio",
    "tdx-guest",
    "tun",
    "usb-reader",
    "vhost-net",
    "xilinx-fpga",
];

fn shipped_classes() -> Vec<DeviceClass> {
    let directory = tempfile::tempdir().unwrap();
    class_files::copy_all(directory.path()).unwrap();
    let sources = device_class::load::read_sources(&[directory.path().to_owned()]).unwrap();
    sources
        .iter()
        .map(|source| source.parse().unwrap())
        .collect()
}

fn keys(daemon_set: &Value) -> BTreeSet<String> {
    list(&pod(daemon_set)["tolerations"])
        .map(|toleration| text(&toleration["key"]).to_owned())
        .collect()
}

/// Administrators taint nodes with devices by the name of the resource, and managed clusters do so
/// by themselves, such as with google.com/tpu.
#[test]
fn taints_of_every_class_are_tolerated() {
    let base = Objects::read("deploy/base");
    let keys = keys(base.only("DaemonSet"));
    let classes = shipped_classes();
    for class in &classes {
        let own = class.spec.resource.to_string();
        let is_generic = own.starts_with("devices.boathook.dev/") || own.contains("boathook.dev/");
        let name = class.name.as_str();
        let has = keys.iter().any(|key| class.spec.may_offer(key));
        let wanted = !UNTAINTED.contains(&name) && !is_generic;
        assert!(has || !wanted, "no toleration of {own} of the class {name}");
    }
    for key in &keys {
        let mut classes = classes.iter();
        let is_offered = classes.any(|class| class.spec.may_offer(key));
        assert!(is_offered, "{key} is no resource of a class");
    }
}

#[test]
fn all_daemon_sets_tolerate_the_same() {
    let base = keys(Objects::read("deploy/base").only("DaemonSet"));
    for component in ["follow", "dra"] {
        let file = repository("deploy/components")
            .join(component)
            .join("daemon-set.yaml");
        let file = fs::read_to_string(file).unwrap();
        let set = harness::manifests::documents(&file).unwrap().remove(0);
        assert_eq!(keys(&set), base, "{component}");
    }
    let values = json!({"follow": {"enabled": true}, "classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]}});
    let Some(objects) = chart(&values).unwrap() else {
        return;
    };
    let sets = objects
        .iter()
        .filter(|object| object["kind"] == "DaemonSet");
    let sets: Vec<_> = sets.map(keys).collect();
    assert_eq!(sets, [base.clone(), base.clone(), base]);
}

#[test]
fn taints_of_a_cluster_are_tolerated_beside_those_of_the_chart() {
    let own = json!({"key": "pool", "operator": "Equal", "value": "gpus"});
    let Some(objects) = chart(&json!({"extraTolerations": [own]})).unwrap() else {
        return;
    };
    let set = objects
        .iter()
        .find(|object| object["kind"] == "DaemonSet")
        .unwrap();
    let mut expected = keys(Objects::read("deploy/base").only("DaemonSet"));
    expected.insert("pool".to_owned());
    assert_eq!(keys(set), expected);
}
