//! Tests of the pod of `helm test`, and of a plugin that is a service of the nodes.

use harness::manifests::{accepted, chart};
use serde_json::{Value, json};

use crate::manifest::{Objects, named, words};
use crate::references;
use crate::rendered::config_maps;

fn render(values: &Value) -> Option<Objects> {
    chart(values).unwrap().map(Objects::from_documents)
}

#[test]
fn the_test_opens_the_devices_that_the_values_name() {
    for (engine, class) in [("cdi", Value::Null), ("crio", json!("boathook"))] {
        let values = json!({
            "engine": engine,
            "nodeSelector": {"pool": "gpus"},
            "tests": {"resources": {"nvidia.com/gpu": 2}},
        });
        let Some(objects) = render(&values) else {
            return;
        };
        let pod = objects.only("Pod");
        assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
        let spec = &pod["spec"];
        assert_eq!(spec["nodeSelector"]["pool"], "gpus");
        assert_eq!(spec["runtimeClassName"], class);
        assert_eq!(spec["tolerations"], objects.pod()["tolerations"]);
        let container = &spec["containers"][0];
        assert_eq!(
            words(&container["command"]),
            ["/boathook/bin/boathook-plugin"]
        );
        assert_eq!(words(&container["args"]), ["open-devices"]);
        assert_eq!(container["image"], objects.plugin()["image"]);
        assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "2");
    }
    let Some(plain) = render(&json!({})) else {
        return;
    };
    assert!(plain.of_kind("Pod").is_empty());
}

/// The pod installs the service and then waits. It must not offer devices beside the service.
#[test]
fn a_plugin_of_the_nodes_is_not_in_the_pod() {
    for engine in ["cdi", "containerd"] {
        let values = json!({
            "engine": engine, "plugin": {"hostService": true}, "hostPrograms": true,
        });
        let Some(objects) = render(&values) else {
            return;
        };
        references::check(&objects, &config_maps(&objects));
        let (init, plugin) = (objects.init(), objects.plugin());
        assert_eq!(words(&init["args"]).last(), Some(&"--plugin-service"));
        // It holds the lock by which another release is refused.
        let waiting = [
            "wait",
            "--host-root=/host",
            "--release=boathook-system/boathook",
        ];
        assert_eq!(words(&plugin["args"]), waiting);
        let lock = named(&plugin["volumeMounts"], "release").unwrap();
        assert_eq!(lock["mountPath"], "/host/run/boathook/release");
        assert_eq!(plugin["livenessProbe"], Value::Null);
        assert!(named(&init["volumeMounts"], "host").is_some());
    }
    let host_service =
        |key: &str, value: Value| json!({"plugin": {"hostService": true}, key: value});
    let wrong = [
        host_service("monitoring", json!({"enabled": true})),
        host_service("takeOver", json!(true)),
        host_service("nodeLabels", json!(true)),
        host_service("register", json!("watcher")),
        host_service("kubeletDir", json!("/k")),
        host_service("cdiDir", json!("/run/cdi")),
        host_service("logLevel", json!("debug")),
        host_service("logFormat", json!("json")),
        host_service("extraArgs", json!({"plugin": ["--rescan=60"]})),
        json!({"tests": {"resources": {"gpu": 1}}}),
        json!({"tests": {"resources": {"nvidia.com/gpu": 0}}}),
    ];
    assert_eq!(accepted(&wrong).unwrap(), None);
}
