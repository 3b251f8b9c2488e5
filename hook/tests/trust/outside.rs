//! Containers that are in no pod of Kubernetes: the variable alone is their
//! request, and annotations are nothing.

use serde_json::{Value, json};

use crate::host::{CONTAINERD, CRIO, FIRST, Host, OTHER, set_env};

/// The cgroup paths that podman writes, with both cgroup managers, alone, in a
/// `podman pod` and with `--cgroups=split`; and those of other engines.
const PODMAN: [&str; 5] = [
    "/libpod_parent/libpod-239dd086736e542528d47bd56ac426d4",
    "/libpod_parent/bc0690237c437f947819803e52447c61/libpod-239dd086736e542528d47bd56ac426d4",
    "machine.slice:libpod:239dd086736e542528d47bd56ac426d4",
    "machine.slice/machine-libpod_pod_bc0690237c437f947819803e52447c61.slice:libpod:239dd086",
    "/user.slice/user-1000.slice/app.service/libpod-payload-239dd086736e542528d47bd56ac426d4",
];
const OTHERS: [&str; 4] = [
    "/docker/2f1de4e2",
    "system.slice:docker:2f1de4e2",
    "/default/2f1de4e2",
    "",
];

/// A container with the annotations of the recording but in another cgroup.
fn in_cgroup(host: &Host, path: &str) -> Value {
    let mut config = host.config();
    config["linux"]["cgroupsPath"] = path.into();
    config
}

/// podman copies the annotations of an image's manifest into config.json.
#[test]
fn an_image_cannot_pretend_to_be_a_pod() {
    for recording in [CONTAINERD, CRIO] {
        let mut host = Host::new(recording);
        for (allowed, wanted) in [(true, vec![OTHER]), (false, vec![])] {
            host.trust.allow_env_outside_kubernetes = allowed;
            // What a pod is trusted with is not for an image that claims its name.
            host.trust.trusted_pods = vec!["default".to_owned().try_into().unwrap()];
            for path in PODMAN {
                let mut config = in_cgroup(&host, path);
                config["annotations"]["devices.boathook.dev/npu"] = "all".into();
                set_env(&mut config, OTHER);
                let (devices, ..) = host.start(&config).unwrap();
                assert_eq!(devices, wanted, "{recording}, {path}");
            }
            // On other engines nothing tells it from a pod's container of a
            // kubelet that does not write uids into its cgroups.
            for path in OTHERS {
                let mut config = in_cgroup(&host, path);
                let error = host.start(&config).unwrap_err();
                assert!(error.contains("does not contain the pod's uid"), "{error}");
                set_env(&mut config, "void");
                assert_eq!(
                    host.start(&config).unwrap().0.len(),
                    0,
                    "{recording}, {path}"
                );
            }
        }
    }
}

#[test]
fn outside_pods_the_variable_alone_is_the_request() {
    let mut host = Host::new(CONTAINERD);
    for path in PODMAN.into_iter().chain(OTHERS) {
        for (variable, wanted) in [
            (Some("void"), &[][..]),
            (Some(""), &[]),
            (None, &[]),
            (Some(FIRST), &[FIRST]),
        ] {
            for class in ["npu", "unknown"] {
                let mut config = in_cgroup(&host, path);
                config["annotations"] = json!({ format!("devices.boathook.dev/{class}"): "all" });
                set_env(&mut config, variable.unwrap_or_default());
                if variable.is_none() {
                    config["process"]["env"] = json!([]);
                }
                let (devices, ..) = host.start(&config).unwrap();
                assert_eq!(devices, wanted, "{path}, {variable:?}");
            }
        }
    }
    host.trust.allow_env_outside_kubernetes = false;
    let mut config = in_cgroup(&host, OTHERS[0]);
    config["annotations"] = json!({});
    let (devices, warnings, text) = host.start(&config).unwrap();
    assert_eq!((devices.len(), warnings), (0, 1), "{text}");
}

/// podman 4 writes two annotations of CRI-O's for the containers of a `podman
/// pod`, recorded here from 4.3.1.
#[test]
fn containers_of_a_podman_pod_are_like_any_of_podmans() {
    let host = Host::new(CRIO);
    for path in PODMAN {
        for kind in ["container", "sandbox"] {
            let mut config = in_cgroup(&host, path);
            config["annotations"] = json!({
                "io.container.manager": "libpod",
                "io.kubernetes.cri-o.ContainerType": kind,
                "io.kubernetes.cri-o.Created": "2026-11-21T15:44:22.707485981Z",
                "io.kubernetes.cri-o.SandboxID":
                    "bc0690237c437f947819803e52447c611443c031031df837acc5432e3684c02b",
                "io.kubernetes.cri-o.TTY": "false",
                "io.podman.annotations.privileged": "FALSE",
                "org.opencontainers.image.stopSignal": "15",
            });
            set_env(&mut config, FIRST);
            assert_eq!(host.start(&config).unwrap().0, [FIRST], "{path}");
        }
    }
    // Without a cgroup, as with `--cgroups=disabled`.
    let mut config = in_cgroup(&host, "");
    config["annotations"] = json!({"io.kubernetes.cri-o.ContainerType": "container",
        "io.kubernetes.cri-o.SandboxID": "bc069023"});
    set_env(&mut config, FIRST);
    assert_eq!(host.start(&config).unwrap().0, [FIRST]);
}
