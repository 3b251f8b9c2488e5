//! Which pod and which container it is, and what that one gets.

use device_class::class::DeviceFilter;
use device_class::config::ClassConfig;
use serde_json::json;

use crate::host::{CONTAINERD, CRIO, FIRST, Host, OTHER, annotate, recorded, set_env};

#[test]
fn a_pod_gets_what_the_kubelet_recorded_regardless_of_its_request() {
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
fn an_image_that_requests_without_an_allocation_starts_without_devices() {
    for recording in [CONTAINERD, CRIO] {
        let mut host = Host::new(recording);
        host.checkpoint(
            r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#,
        );
        let (devices, warnings, text) = host.start(&host.config()).unwrap();
        assert_eq!((devices.len(), warnings), (0, 1), "{text}");
        assert!(text.contains("none is given to container c of pod default/npu-pod"));
        assert!(text.contains("the kubelet recorded none"), "{text}");
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
        ("io.kubernetes.cri.sandbox-namespace", "monitoring"),
    ];
    let mut host = Host::new(CRIO);
    host.trust.trusted_pods = vec!["monitoring".to_owned().try_into().unwrap()];
    // On CRI-O a user's pod annotations stand among the container's.
    for (key, value) in forgeries {
        let mut config = host.config();
        config["annotations"][key] = value.into();
        let (devices, ..) = host.start(&config).unwrap();
        assert_eq!(devices, recorded(CRIO, "c"), "{key}");
    }
}

/// Where a handler of containerd's lets pods' annotations pass, a user can write
/// CRI-O's; on CRI-O, containerd's.
#[test]
fn annotations_of_two_engines_are_refused() {
    let labels = json!({"io.kubernetes.container.name": "i",
        "io.kubernetes.pod.name": "npu-pod", "io.kubernetes.pod.namespace": "monitoring",
        "io.kubernetes.pod.uid": "7c7dd54d-787e-4d2a-16bb-d8e6ec744689"});
    for (recording, forged) in [
        (CRIO, json!({"io.kubernetes.cri.container-type": "sandbox"})),
        (CRIO, json!({"io.kubernetes.cri.container-type": ""})),
        (
            CONTAINERD,
            json!({"io.kubernetes.cri-o.ContainerType": "container",
            "io.kubernetes.cri-o.Labels": labels.to_string()}),
        ),
    ] {
        let mut host = Host::new(recording);
        host.trust.trusted_pods = vec!["monitoring".to_owned().try_into().unwrap()];
        let mut config = host.config();
        let annotations = config["annotations"].as_object_mut().unwrap();
        annotations.extend(forged.as_object().unwrap().clone());
        let error = host.start(&config).unwrap_err();
        assert!(error.contains("both containerd"), "{recording}: {error}");
    }
}

/// The kubelet writes a uid with dashes, or without for a static pod; each kind
/// of container is recorded under its own name, and so is one that was started
/// again.
#[test]
fn every_kind_of_pod_and_container_gets_its_own() {
    let dashed = "7c7dd54d-787e-4d2a-16bb-d8e6ec744689";
    let plain = dashed.replace('-', "");
    for uid in [dashed, &plain] {
        let mut host = Host::new(CONTAINERD);
        let entry = |container: &str, id: &str| {
            json!({"PodUID": uid, "ContainerName": container, "AllocResp": "",
                   "ResourceName": "vendor.com/npu", "DeviceIDs": {"-1": [id]}})
        };
        let record = [
            entry("init", FIRST),
            entry("main", FIRST),
            entry("sidecar", OTHER),
        ];
        host.checkpoint(json!({"Data": {"PodDeviceEntries": record}}).to_string());
        for (container, devices) in [
            ("init", &[FIRST][..]),
            ("main", &[FIRST]),
            ("sidecar", &[OTHER]),
            ("ephemeral", &[]),
        ] {
            for start in ["2f1de4e2", "started-again"] {
                let mut config = host.config();
                let annotations = &mut config["annotations"];
                annotations["io.kubernetes.cri.container-name"] = container.into();
                annotations["io.kubernetes.cri.sandbox-uid"] = uid.into();
                config["linux"]["cgroupsPath"] = format!("/kubepods/pod{uid}/{start}").into();
                let (got, ..) = host.start(&config).unwrap();
                assert_eq!(got, devices, "{container} of {uid}, {start}");
            }
        }
    }
}

/// Of two resources of one class, such as two bitstreams, Allocate is called
/// twice, and the kubelet keeps one of the two values of the variable.
#[test]
fn a_container_with_two_resources_of_a_class_gets_the_devices_of_both() {
    let mut host = Host::new(CONTAINERD);
    let class = "version = 1\nresource = 'vendor.com/{id}'\nrequest = { env = 'VISIBLE' }\n\
                 device = { id = '{id}' }\n[[discover]]\npath = '/sys/npu/{id}'\n";
    std::fs::write(host.root.path().join("classes/npu.toml"), class).unwrap();
    let entry = |id: &str| {
        json!({"PodUID": "7c7dd54d-787e-4d2a-16bb-d8e6ec744689", "ContainerName": "c",
               "ResourceName": format!("vendor.com/{id}"), "DeviceIDs": {"-1": [id]}})
    };
    let record = json!({"Data": {"PodDeviceEntries": [entry(OTHER), entry(FIRST)]}});
    host.checkpoint(record.to_string());
    let mut config = host.config();
    set_env(&mut config, OTHER);
    assert_eq!(host.start(&config).unwrap().0, [OTHER, FIRST]);
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
    assert!(
        error.contains("no annotation of its engine names"),
        "{error}"
    );
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

/// CRI-O writes `null` where the request of the CRI had no annotations.
#[test]
fn annotations_that_are_null_are_none() {
    let host = Host::new(CRIO);
    let mut config = host.config();
    config["annotations"]["io.kubernetes.cri-o.Annotations"] = "null".into();
    assert_eq!(host.start(&config).unwrap().0, recorded(CRIO, "c"));
    set_env(&mut config, "void");
    assert_eq!(host.start(&config).unwrap().0.len(), 0);
}

/// CRI-O's record of a container's own annotations is nothing on another engine.
#[test]
fn the_annotations_of_a_container_are_those_that_its_engine_writes() {
    let mut host = Host::new(CONTAINERD);
    host.trust.trusted_pods = vec!["default".to_owned().try_into().unwrap()];
    let mut config = host.config();
    config["annotations"]["io.kubernetes.cri-o.Annotations"] =
        json!({"devices.boathook.dev/npu": OTHER})
            .to_string()
            .into();
    set_env(&mut config, FIRST);
    assert_eq!(host.start(&config).unwrap().0, [FIRST]);
}

/// CRI-O writes the annotations of a restored image after its own, and last each of the
/// kubelet's labels.
#[test]
fn labels_that_an_image_replaces_are_refused() {
    let mut host = Host::new(CRIO);
    host.trust.trusted_pods = vec!["monitoring".to_owned().try_into().unwrap()];
    let config = host.config();
    let labels = config["annotations"]["io.kubernetes.cri-o.Labels"].as_str();
    for (from, to, key) in [
        ("default", "monitoring", "io.kubernetes.pod.namespace"),
        ("npu-pod-node1", "another", "io.kubernetes.pod.name"),
        (r#":"c""#, r#":"i""#, "io.kubernetes.container.name"),
        ("e744740f", "00000000", "io.kubernetes.pod.uid"),
    ] {
        let mut config = config.clone();
        let forged = labels.unwrap().replace(from, to);
        config["annotations"]["io.kubernetes.cri-o.Labels"] = forged.into();
        let error = host.start(&config).unwrap_err();
        assert!(
            error.starts_with(&format!("the annotation {key} is")),
            "{error}"
        );
    }
    let mut sandbox = config.clone();
    sandbox["annotations"]["io.kubernetes.cri-o.ContainerType"] = "sandbox".into();
    assert_eq!(host.start(&sandbox).unwrap().0.len(), 0);
    let error = host.start_with_cdi(&[&format!("npu={FIRST}")], &sandbox);
    assert!(
        error
            .unwrap_err()
            .contains("it may have no devices of class npu")
    );
}

#[test]
fn a_container_of_uncertain_origin_starts_if_it_requests_nothing() {
    let host = Host::new(CRIO);
    let mut config = host.config();
    config["annotations"]["io.kubernetes.cri-o.Labels"] = "[".into();
    let error = host.start(&config).unwrap_err();
    assert!(
        error.contains("Labels is missing or malformed: `[`"),
        "{error}"
    );
    set_env(&mut config, "void");
    assert_eq!(host.start(&config).unwrap().0.len(), 0);
    annotate(CRIO, &mut config, "devices.boathook.dev/npu", FIRST);
    host.start(&config).unwrap_err();
}

/// The annotation of a pod of before, which CRI-O hands on when it starts the container again.
#[test]
fn an_annotation_of_a_class_that_is_gone_says_what_helps() {
    let host = Host::new(CRIO);
    let mut config = host.config();
    annotate(CRIO, &mut config, "devices.boathook.dev/gone", FIRST);
    let error = host.start(&config).unwrap_err();
    let advice =
        "in Kubernetes bring the class back (ConfigMap boathook-classes), or delete the pod";
    assert!(error.contains(advice), "{error}");
}

#[test]
fn the_administrator_trusts_some_pods() {
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
        host.trust.trusted_pods = vec![pattern.to_owned().try_into().unwrap()];
        assert_eq!(
            host.start(&host.config()).unwrap().0.len(),
            wanted,
            "{pattern}"
        );
    }
}

/// Trust may be in what a pod asks of one class.
#[test]
fn the_administrator_trusts_some_pods_with_one_class() {
    let mut host = Host::new(CONTAINERD);
    for (class, wanted) in [("npu", 4), ("other", 2)] {
        let trusting = ClassConfig {
            trusted_pods: vec!["default/npu-pod".to_owned().try_into().unwrap()],
            ..ClassConfig::default()
        };
        host.class = [(class.to_owned().try_into().unwrap(), trusting)].into();
        let (devices, ..) = host.start(&host.config()).unwrap();
        assert_eq!(devices.len(), wanted, "{class}");
    }
}

/// Devices that config.toml hides are given to no container.
#[test]
fn what_the_administrator_hides_is_not_given() {
    let mut host = Host::new(CONTAINERD);
    host.trust.trusted_pods = vec!["default".to_owned().try_into().unwrap()];
    let hiding = ClassConfig {
        hidden_devices: vec![DeviceFilter::Name(FIRST.to_owned())],
        ..ClassConfig::default()
    };
    host.class = [("npu".to_owned().try_into().unwrap(), hiding)].into();
    let (devices, _, text) = host.start(&host.config()).unwrap();
    assert_eq!(devices.len(), 3);
    assert!(text.contains("hidden by config.toml"), "{text}");
    let mut config = host.config();
    set_env(&mut config, FIRST);
    let error = host.start(&config).unwrap_err();
    assert!(error.contains("has no device"), "{error}");
}
