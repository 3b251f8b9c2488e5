//! The Helm chart, as Helm renders it.

use std::collections::BTreeSet;
use std::fs;

use device_class::config::{Config, LogLevel};
use harness::manifests::{accepted, chart, documents, repository};
use k8s_openapi::api::core::v1::{PodSpec, Volume, VolumeMount};
use serde_json::{Value, json};

use crate::manifest::Objects;
use crate::{references, rendered};

/// The chart's objects with these values; `None`, and the test is skipped, without
/// Helm.
fn render(values: &Value) -> Option<Objects> {
    chart(values).unwrap().map(Objects::of)
}

fn config_maps(objects: &Objects) -> BTreeSet<String> {
    let names = objects.config_maps.iter();
    names.map(|m| m.metadata.name.clone().unwrap()).collect()
}

fn pod(objects: &Objects) -> &PodSpec {
    references::pod(&objects.daemon_sets[0])
}

fn arguments(objects: &Objects) -> Vec<String> {
    let plugin = &pod(objects).containers[0];
    plugin.args.clone().unwrap()
}

#[test]
fn every_engine_has_what_it_needs() {
    for engine in ["cdi", "containerd", "crio", "k3s", "rke2"] {
        let Some(objects) = render(&json!({"engine": engine})) else {
            return;
        };
        references::check(&objects, &config_maps(&objects));
        references::check_configuration(&objects);
        references::check_engine(&objects);
    }
}

#[test]
fn the_defaults_are_those_of_the_overlay_for_cdi() {
    let plain = rendered::render(&repository("deploy/overlays/cdi"));
    let (Some(chart), Some(plain)) = (render(&json!({})), plain) else {
        return;
    };
    assert_eq!(comparable(&chart), comparable(&plain));
    let update = |objects: &Objects| objects.daemon_sets[0].spec.update_strategy.clone();
    assert_eq!(update(&chart), update(&plain));
}

/// The pod without what differs knowingly: kustomize gives ConfigMaps names of its own.
fn comparable(objects: &Objects) -> PodSpec {
    let mut pod = pod(objects).clone();
    let volumes = pod.volumes.as_mut().unwrap();
    volumes.sort_by(|a: &Volume, b: &Volume| a.name.cmp(&b.name));
    for map in volumes.iter_mut().filter_map(|v| v.config_map.as_mut()) {
        let names = ["boathook-plugin", "boathook-classes"];
        let name = names.iter().find(|name| map.name.starts_with(**name));
        map.name.truncate(name.unwrap().len());
    }
    let containers = pod.init_containers.iter_mut().flatten();
    for container in containers.chain(&mut pod.containers) {
        container.image_pull_policy = None;
        let mounts = container.volume_mounts.as_mut().unwrap();
        mounts.sort_by(|a: &VolumeMount, b: &VolumeMount| a.name.cmp(&b.name));
    }
    pod
}

#[test]
fn the_configuration_contains_the_values() {
    let values = json!({
        "classes": {"enabled": ["gpu-share"], "disabled": ["dummy-npu", "nvidia-gpu"]},
        "replicas": {"amd-gpu": 4, "gpu-share": 2},
        "kubeletDir": "/var/lib/k0s/kubelet",
        "config": "log_level = \"info\"\n[class.intel-gpu]\nexcept = [\"card0\"]",
    });
    let Some(objects) = render(&values) else {
        return;
    };
    let text = &objects.config_maps[0].data.as_ref().unwrap()["config.toml"];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, text).unwrap();
    let config = Config::load(Some(&file)).unwrap();
    assert_eq!(config.log_level, LogLevel::Info);
    let record = "/var/lib/k0s/kubelet/device-plugins/kubelet_internal_checkpoint";
    assert_eq!(config.trust.kubelet_checkpoint.to_str(), Some(record));
    for table in [
        "[class.gpu-share]\nenabled = true\nreplicas = 2\n",
        "[class.nvidia-gpu]\nenabled = false\n",
        "[class.amd-gpu]\nreplicas = 4\n",
        "[class.intel-gpu]\nexcept = [\"card0\"]",
    ] {
        assert!(text.contains(table), "{text}");
    }
}

#[test]
fn own_class_files_are_in_their_config_map() {
    let text = "version = 1\nresource = \"x.com/chip\"\n";
    let Some(objects) = render(&json!({"classes": {"own": {"mychip": text}}})) else {
        return;
    };
    references::check(&objects, &config_maps(&objects));
    let data = objects.config_maps.iter().flat_map(|map| &map.data);
    let files: Vec<_> = data
        .flatten()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    assert_eq!(files[1], ("mychip.toml", text));
    let checksum = |objects: &Objects| {
        let template = &objects.daemon_sets[0].spec.template;
        template.metadata.as_ref().unwrap().annotations.clone()
    };
    let without = render(&json!({})).unwrap();
    assert_ne!(
        checksum(&objects),
        checksum(&without),
        "the pods stay as they are"
    );
}

#[test]
fn every_value_has_its_effect() {
    let Some(plain) = render(&json!({})) else {
        return;
    };
    assert_eq!(
        arguments(&plain),
        [
            "run",
            "--config=/config/config.toml",
            "--host-root=/host",
            "--probes=[::]:9910"
        ]
    );
    let with = |values: Value| {
        let objects = render(&values).unwrap();
        references::check_volumes(pod(&objects), &config_maps(&objects));
        objects
    };
    let digest = format!("sha256:{}", "0".repeat(64));
    for (image, wanted) in [
        (
            json!({"repository": "r.example/b", "tag": "1"}),
            "r.example/b:1".to_owned(),
        ),
        (json!({"digest": digest}), format!("boathook@{digest}")),
    ] {
        let objects = with(json!({"image": image}));
        for container in references::containers(pod(&objects)) {
            assert_eq!(container.image.as_ref(), Some(&wanted));
        }
    }
    let secrets = with(json!({"image": {"pullSecrets": ["one"]}}));
    assert!(secrets.service_accounts[0].image_pull_secrets.is_some());
    let options = with(json!({
        "logFormat": "json", "logLevel": "debug", "takeOver": true, "register": "watcher",
        "kubeletDir": "/k",
    }));
    assert_eq!(
        arguments(&options)[3..],
        [
            "--kubelet-dir=/k",
            "--register=watcher",
            "--take-over",
            "--log-level=debug",
            "--log-format=json",
            "--probes=[::]:9910"
        ]
    );
    let mounts = pod(&options).containers[0].volume_mounts.as_ref().unwrap();
    assert!(
        mounts
            .iter()
            .any(|mount| mount.mount_path == "/k/plugins_registry")
    );
    let scheduling = with(json!({
        "nodeSelector": {"a": "b"}, "tolerations": [], "priorityClassName": "mine",
    }));
    assert_eq!(pod(&scheduling).node_selector.as_ref().unwrap()["a"], "b");
    assert_eq!(pod(&scheduling).tolerations, None);
    assert_eq!(
        pod(&scheduling).priority_class_name.as_deref(),
        Some("mine")
    );
    assert!(scheduling.priority_classes.is_empty());
    let restart = with(json!({"engine": "containerd", "restartEngine": true}));
    let init = &pod(&restart).init_containers.as_ref().unwrap()[0];
    assert_eq!(init.args.as_ref().unwrap().last().unwrap(), "--restart");
    let programs = with(json!({"hostPrograms": true}));
    let context = pod(&programs).containers[0]
        .security_context
        .as_ref()
        .unwrap();
    assert_eq!(context.privileged, Some(true));
    assert!(
        with(json!({"engine": "containerd", "runtimeClass": {"create": false}}))
            .runtime_classes
            .is_empty()
    );
    let limits = with(json!({"resources": {"plugin": {"limits": {"memory": "128Mi"}}}}));
    let resources = pod(&limits).containers[0].resources.as_ref().unwrap();
    assert_eq!(resources.limits.as_ref().unwrap()["memory"].0, "128Mi");
}

#[test]
fn devices_are_followed_if_that_is_asked_for() {
    let with =
        |uninstall: bool| render(&json!({"follow": {"enabled": true}, "uninstall": uninstall}));
    let (Some(plain), Some(objects), Some(uninstalled)) =
        (render(&json!({})), with(false), with(true))
    else {
        return;
    };
    assert_eq!(plain.daemon_sets.len(), 1);
    references::check_follower(&objects, &plain);
    assert_eq!(uninstalled.daemon_sets.len(), 1);
}

/// Nothing is written while it is uninstalled. The plugin starts after the engine was asked.
#[test]
fn specifications_are_written_unless_a_handler_brings_the_hook() {
    for (engine, uninstall, written) in [
        ("cdi", false, true),
        ("cdi", true, false),
        ("containerd", false, false),
    ] {
        let Some(objects) = render(&json!({"engine": engine, "uninstall": uninstall})) else {
            return;
        };
        references::check(&objects, &config_maps(&objects));
        let mounts = pod(&objects).containers[0].volume_mounts.iter().flatten();
        let mut directories = mounts.filter(|mount| mount.mount_path == "/var/run/cdi");
        let is_writable = directories
            .next()
            .map(|mount| mount.read_only != Some(true));
        assert_eq!(is_writable, written.then_some(true), "{engine}");
        let mut init = pod(&objects).init_containers.iter().flatten();
        let asked = init.any(|container| container.name == "check-engine");
        assert_eq!(asked, written, "{engine}");
        let by_handler = arguments(&objects).contains(&"--delivery=handler".to_owned());
        assert_eq!(by_handler, engine != "cdi");
    }
}

#[test]
fn monitoring_has_a_port_and_a_pod_monitor() {
    let values = json!({"monitoring": {"enabled": true, "port": 9000, "podMonitor": true}});
    let Some(objects) = render(&values) else {
        return;
    };
    assert_eq!(arguments(&objects)[4], "--http=[::]:9000");
    references::check_monitoring(&objects);
    references::check_probes(&objects);
    assert!(objects.network_policies.is_empty());
}

#[test]
fn a_policy_names_who_may_read_the_metrics() {
    let peer = json!({"namespaceSelector": {"matchLabels": {"team": "watchers"}}});
    let values = json!({"monitoring": {"enabled": true, "port": 9000, "allowFrom": [peer]}});
    let Some(objects) = render(&values) else {
        return;
    };
    references::check_metrics_policy(&objects, 9000, &peer);
}

#[test]
fn it_uninstalls_with_the_image_that_is_there() {
    let Some(objects) = render(&json!({"uninstall": true, "engine": "crio"})) else {
        return;
    };
    references::check(&objects, &config_maps(&objects));
    let pod = pod(&objects);
    let init = &pod.init_containers.as_ref().unwrap()[0];
    assert_eq!(init.args.as_ref().unwrap()[0], "uninstall");
    assert_eq!(pod.containers[0].image, init.image);
    assert_eq!(arguments(&objects), ["wait"]);
    assert!(pod.containers[0].liveness_probe.is_none());
}

#[test]
fn wrong_values_are_refused() {
    let wrong = [
        json!({"engin": "crio"}),
        json!({"engine": "docker"}),
        json!({"image": {"digest": "sha256:1"}}),
        json!({"classes": {"disabled": "nvidia-gpu"}}),
        json!({"classes": {"own": {"My Chip": "version = 1"}}}),
        json!({"replicas": {"nvidia-gpu": 0}}),
        json!({"monitoring": {"podMonitor": true}}),
        json!({"cdi": true}),
        json!({"replicas": {"nvidia-gpu": 4}, "config": "[class.nvidia-gpu]\nexcept = []"}),
        json!({"kubeletDir": "/k", "config": "[trust]\ntrusted_pods = []"}),
        json!({"engine": "cdi", "restartEngine": true}),
    ];
    assert_eq!(accepted(&wrong).unwrap(), None);
}

#[test]
fn the_chart_is_of_this_version() {
    let chart = fs::read_to_string(repository("deploy/helm/Chart.yaml")).unwrap();
    let chart = documents(&chart).unwrap().remove(0);
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}
