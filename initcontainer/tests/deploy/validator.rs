//! Tests of the pod of `helm test`, and of a plugin that is a service of the nodes.

use harness::manifests::{accepted, chart};
use initcontainer::plugin_argument::PluginArgument;
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
        let arguments = words(&init["args"]);
        let service = arguments.iter().position(|it| *it == "--plugin-service");
        let expected = ["--plugin-arg=--probes=127.0.0.1:9910"];
        assert_eq!(arguments[service.unwrap() + 1..], expected);
        // The kubelet asks the service, so that an update stops at a node whose service fails.
        let probe = &plugin["readinessProbe"]["httpGet"];
        assert_eq!(
            *probe,
            json!({"host": "127.0.0.1", "path": "/readyz", "port": 9910})
        );
        assert_eq!(objects.pod()["hostNetwork"], Value::Null);
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
    let allow_from = json!([{"namespaceSelector": {"matchLabels": {"a": "b"}}}]);
    let mut surge = host_service(
        "updateStrategy",
        json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
    );
    surge["monitoring"] = json!({"enabled": true});
    let wrong = [
        // A NetworkPolicy does not apply to the address of a node.
        host_service(
            "monitoring",
            json!({"enabled": true, "allowFrom": allow_from}),
        ),
        // Two pods of a node cannot have the same port of it.
        surge,
        host_service("extraEnv", json!({"plugin": [{"name": "A", "value": "b"}]})),
        host_service("extraArgs", json!({"plugin": ["--probes=127.0.0.1:1"]})),
        host_service("extraArgs", json!({"plugin": ["--delivery=handler"]})),
        host_service("extraArgs", json!({"plugin": ["--rescan", "60"]})),
        host_service("extraArgs", json!({"plugin": ["--config=$HOME"]})),
        json!({"tests": {"resources": {"gpu": 1}}}),
        json!({"tests": {"resources": {"nvidia.com/gpu": 0}}}),
    ];
    assert_eq!(accepted(&wrong).unwrap(), None);
}

/// The service gets what the plugin in a pod gets. Its metrics are at the node's address, which the pod
/// has too, so that the PodMonitor finds them.
#[test]
fn a_plugin_of_the_nodes_has_the_options_of_the_chart() {
    let values = json!({
        "plugin": {"hostService": true},
        "monitoring": {"enabled": true, "podMonitor": true, "port": 9920},
        "nodeLabels": true, "takeOver": true, "register": "watcher",
        "kubeletDir": "/k", "cdiDir": "/run/cdi", "logLevel": "debug", "logFormat": "json",
        "extraArgs": {"plugin": ["--rescan=60"]},
    });
    let Some(objects) = render(&values) else {
        return;
    };
    references::check(&objects, &config_maps(&objects));
    let arguments = words(&objects.init()["args"]).into_iter();
    let options: Vec<&str> = arguments
        .filter_map(|argument| argument.strip_prefix("--plugin-arg="))
        .collect();
    let expected = [
        "--kubelet-dir=/k",
        "--register=watcher",
        "--take-over",
        "--log-level=debug",
        "--log-format=json",
        "--node-labels=/etc/kubernetes/node-feature-discovery/features.d/boathook",
        "--cdi=/run/cdi",
        "--probes=127.0.0.1:9910",
        "--http=[::]:9920",
        "--rescan=60",
    ];
    assert_eq!(options, expected);
    for option in options {
        option.parse::<PluginArgument>().unwrap();
    }
    assert_eq!(objects.pod()["hostNetwork"], true);
    let ports = json!([{"name": "metrics", "containerPort": 9920}]);
    assert_eq!(objects.plugin()["ports"], ports);

    // Two pods of a node cannot have the same port of it, so that the earlier one ends first.
    let metrics = json!({"plugin": {"hostService": true}, "monitoring": {"enabled": true}});
    let objects = render(&metrics).unwrap();
    let update = &objects.only("DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"];
    assert_eq!(*update, json!({"maxUnavailable": "10%"}));
}
