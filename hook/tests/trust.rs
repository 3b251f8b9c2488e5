//! Whose word counts: what containers of real engines under a real kubelet
//! ask for (recorded, see `testdata/`), and what they get.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::{Config, Trust};
use hook::grant::plan_for;
use hook::oci::Bundle;
use serde_json::{Value, json};
use tempfile::TempDir;

const CONTAINERD: &str = "containerd-2.4-kubelet-1.36";
const CRIO: &str = "cri-o-kubelet-1.36";

/// What the kubelet recorded for the container `c`, and what else there is.
const FIRST: &str = "730234afea5d8fabafcbfecab66baa5f38aa59b4";
const OTHER: &str = "159872632b95a2060ad1dcc340488e319afe10fd";

/// A host with four devices of the class that the recorded pod asked for.
struct Host {
    root: TempDir,
    recording: &'static str,
    trust: Trust,
}

impl Host {
    fn new(recording: &'static str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for id in [
            OTHER,
            "357cd2fd5d8ade0713b27cce3cc5938ad67639db",
            FIRST,
            "008dc4f550c3ed383ef531151def4573848cd9d0",
        ] {
            fs::create_dir_all(root.path().join("sys/npu").join(id)).unwrap();
        }
        fs::create_dir(root.path().join("classes")).unwrap();
        let class = "version = 1\nresource = 'vendor.com/npu'\nrequest = { env = 'VISIBLE' }\n\
                     device = { id = '{id}' }\n[[discover]]\npath = '/sys/npu/{id}'\n";
        fs::write(root.path().join("classes/npu.toml"), class).unwrap();
        let kubelet_checkpoint = testdata(recording).join("kubelet_internal_checkpoint.json");
        let trust = Trust {
            kubelet_checkpoint,
            ..Trust::default()
        };
        Host {
            root,
            recording,
            trust,
        }
    }

    fn config(&self) -> Value {
        let text = fs::read(testdata(self.recording).join("config.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn checkpoint(&mut self, text: impl AsRef<[u8]>) {
        self.trust.kubelet_checkpoint = self.root.path().join("checkpoint");
        fs::write(&self.trust.kubelet_checkpoint, text).unwrap();
    }

    /// The devices that a container gets, how many warnings there are, and
    /// the plan's text; or why it does not start.
    fn start(&self, config: &Value) -> Result<(Vec<String>, usize, String), String> {
        let bundle = self.root.path().join("bundle");
        fs::create_dir_all(&bundle).unwrap();
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        let config = Config {
            classes: vec![self.root.path().join("classes")],
            host_root: self.root.path().into(),
            trust: self.trust.clone(),
            ..Config::default()
        };
        let plan = plan_for(&Bundle::read(&bundle).unwrap(), &config).map_err(|e| e.to_string())?;
        let devices = plan
            .grants
            .iter()
            .flat_map(|grant| grant.devices.clone())
            .collect();
        Ok((devices, plan.warnings.len(), plan.to_string()))
    }
}

fn testdata(recording: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(recording)
}

fn set_env(config: &mut Value, value: &str) {
    let env = config["process"]["env"].as_array_mut().unwrap();
    env.retain(|entry| !entry.as_str().unwrap().starts_with("VISIBLE="));
    env.push(format!("VISIBLE={value}").into());
}

fn recorded(recording: &str, container: &str) -> Vec<String> {
    let text = fs::read(testdata(recording).join("kubelet_internal_checkpoint.json")).unwrap();
    let checkpoint: Value = serde_json::from_slice(&text).unwrap();
    let entries = checkpoint["Data"]["PodDeviceEntries"].as_array().unwrap();
    let of_container = entries.iter().filter(|e| e["ContainerName"] == container);
    let ids = of_container.flat_map(|entry| entry["DeviceIDs"]["-1"].as_array().unwrap());
    let mut ids: Vec<String> = ids.map(|id| id.as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

#[test]
fn a_pod_gets_what_the_kubelet_recorded_whatever_it_asks_for() {
    for recording in [CONTAINERD, CRIO] {
        let host = Host::new(recording);
        let mine = recorded(recording, "c");
        let (one, two) = (mine[0].clone(), mine.join(","));
        for (env, devices, warnings) in [
            ("all", &mine, 1),
            (&*two, &mine, 0),
            (&*one, &mine, 0),
            (OTHER, &mine, 1),
            ("GPU-of-another-host", &mine, 1),
            ("none", &vec![], 0),
            ("void", &vec![], 0),
            ("", &vec![], 0),
        ] {
            let mut config = host.config();
            set_env(&mut config, env);
            let (got, warned, text) = host.start(&config).unwrap();
            assert_eq!(
                (&got, warned),
                (devices, warnings),
                "{recording}, {env}: {text}"
            );
        }
    }
}

#[test]
fn an_image_that_asks_without_an_allocation_starts_with_no_device() {
    for recording in [CONTAINERD, CRIO] {
        let mut host = Host::new(recording);
        host.checkpoint(
            r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#,
        );
        let (devices, warnings, text) = host.start(&host.config()).unwrap();
        assert_eq!((devices.len(), warnings), (0, 1), "{text}");
        assert!(text.contains("the kubelet recorded none for container c of pod default/npu-pod"));
    }
}

#[test]
fn each_container_of_a_pod_gets_its_own() {
    let host = Host::new(CONTAINERD);
    for (container, wanted) in [("c", 2), ("i", 1), ("debugger", 0)] {
        let mut config = host.config();
        config["annotations"]["io.kubernetes.cri.container-name"] = container.into();
        let (devices, ..) = host.start(&config).unwrap();
        assert_eq!(devices, recorded(CONTAINERD, container), "{container}");
        assert_eq!(devices.len(), wanted);
    }
}

#[test]
fn forged_annotations_change_nothing() {
    let other_uid = "11111111-2222-3333-4444-555555555555";
    let forgeries = [
        ("devices.boathook.dev/npu", "all"),
        ("devices.boathook.dev/x", "forged"),
        ("io.kubernetes.cri.sandbox-uid", other_uid),
        ("io.kubernetes.cri.container-name", "i"),
        ("io.kubernetes.cri.container-type", "container"),
        ("io.kubernetes.cri.sandbox-namespace", "monitoring"),
    ];
    let mut host = Host::new(CRIO);
    host.trust.env_is_enough_for = vec!["monitoring".to_owned().try_into().unwrap()];
    // On CRI-O a user's pod annotations stand among the container's.
    for (key, value) in forgeries {
        let mut config = host.config();
        config["annotations"][key] = value.into();
        let (devices, ..) = host.start(&config).unwrap();
        assert_eq!(devices, recorded(CRIO, "c"), "{key}");
    }
}

#[test]
fn a_pod_that_is_two_pods_is_refused() {
    let host = Host::new(CONTAINERD);
    let mut config = host.config();
    config["annotations"]["io.kubernetes.cri.sandbox-uid"] =
        "11111111-2222-3333-4444-555555555555".into();
    let error = host.start(&config).unwrap_err();
    assert!(
        error.contains("but the cgroup is that of the pod 7c7dd54d"),
        "{error}"
    );

    let mut config = host.config();
    config["annotations"] = json!({});
    let error = host.start(&config).unwrap_err();
    assert!(error.contains("its engine does not say which"), "{error}");
}

#[test]
fn containerd_without_the_uid_goes_by_the_cgroup() {
    let host = Host::new(CONTAINERD);
    let mut config = host.config();
    config["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("io.kubernetes.cri.sandbox-uid");
    config["linux"]["cgroupsPath"] =
        "kubepods-besteffort-pod7c7dd54d_787e_4d2a_16bb_d8e6ec744689.slice:cri-containerd:2f1d"
            .into();
    assert_eq!(host.start(&config).unwrap().0, recorded(CONTAINERD, "c"));
}

#[test]
fn a_sandbox_gets_nothing() {
    let host = Host::new(CONTAINERD);
    let mut config = host.config();
    config["annotations"]["io.kubernetes.cri.container-type"] = "sandbox".into();
    assert_eq!(host.start(&config).unwrap().0, Vec::<String>::new());
}

#[test]
fn the_administrator_trusts_some_pods_and_may_trust_nobody_else() {
    let mut host = Host::new(CONTAINERD);
    for (pattern, wanted) in [
        ("default", 4),
        ("default/npu-pod", 4),
        ("default/npu-pod-node1", 4),
        ("default/npu", 4),
        ("default/np", 2),
        ("default/other", 2),
        ("monitoring", 2),
    ] {
        host.trust.env_is_enough_for = vec![pattern.to_owned().try_into().unwrap()];
        assert_eq!(
            host.start(&host.config()).unwrap().0.len(),
            wanted,
            "{pattern}"
        );
    }

    let mut outside = host.config();
    outside["annotations"] = json!({});
    outside["linux"]["cgroupsPath"] = "/docker/2f1de4e2".into();
    for (enough, wanted) in [(true, 4), (false, 0)] {
        host.trust.env_is_enough_outside_kubernetes = enough;
        assert_eq!(host.start(&outside).unwrap().0.len(), wanted, "{enough}");
    }
}

#[test]
fn an_unusable_record_stops_only_containers_that_ask() {
    let mut host = Host::new(CONTAINERD);
    let whole = fs::read(&host.trust.kubelet_checkpoint).unwrap();
    let mut large = whole.clone();
    large.resize(50 << 20, b' ');
    for (record, reason) in [
        (
            &whole[..whole.len() / 2],
            "can't be used: it is not of the known form: EOF",
        ),
        (
            b"".as_slice(),
            "can't be used: it is not of the known form: EOF",
        ),
        (
            b"[]".as_slice(),
            "can't be used: it is not of the known form",
        ),
        (&large, "can't be used: it is larger than 16777216 bytes"),
    ] {
        host.checkpoint(record);
        let error = host.start(&host.config()).unwrap_err();
        assert!(error.contains(reason), "{error}");
        let mut silent = host.config();
        set_env(&mut silent, "void");
        assert_eq!(host.start(&silent).unwrap().0.len(), 0);
    }
    host.trust.kubelet_checkpoint = host.root.path().join("absent");
    let error = host.start(&host.config()).unwrap_err();
    assert!(error.contains("can't be read: No such file"), "{error}");
    assert!(error.contains("set trust.kubelet_checkpoint"), "{error}");
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
    // Unoptimised and on a busy machine; it takes about a millisecond when built for release.
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());
}
