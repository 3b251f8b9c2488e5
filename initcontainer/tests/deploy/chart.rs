//! Tests of the Helm chart, as Helm renders it.

use std::fs;

use device_class::config::{Config, LogLevel};
use harness::manifests::{accepted, chart, chart_with_file, documents, repository, validate};
use serde_json::{Value, json};

use crate::classes::{CHECKS, checks_without_toml};
use crate::manifest::{Objects, mount_at, named, text, words};
use crate::references;
use crate::rendered::{self, config_maps};

/// Renders the chart with these values. Returns `None` without Helm; the test is skipped then.
fn render(values: &Value) -> Option<Objects> {
    chart(values).unwrap().map(Objects::from_documents)
}

fn arguments(objects: &Objects) -> Vec<&str> {
    words(&objects.plugin()["args"])
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
    let update = |objects: &Objects| objects.only("DaemonSet")["spec"]["updateStrategy"].clone();
    assert_eq!(update(&chart), update(&plain));
}

/// Returns the pod without intended differences between the chart and the overlay. For example,
/// kustomize adds a hash to the names of ConfigMaps.
fn comparable(objects: &Objects) -> Value {
    let mut pod = objects.pod().clone();
    let by_name = |value: &Value| value["name"].to_string();
    let volumes = pod["volumes"].as_array_mut().unwrap();
    volumes.sort_by_key(by_name);
    let maps = volumes.iter_mut();
    for name in maps.filter_map(|volume| volume.pointer_mut("/configMap/name")) {
        let mut names = ["boathook-plugin", "boathook-classes"].into_iter();
        *name = names.find(|plain| text(name).starts_with(plain)).into();
    }
    for containers in ["initContainers", "containers"] {
        for container in pod[containers].as_array_mut().unwrap() {
            container.as_object_mut().unwrap().remove("imagePullPolicy");
            let mounts = container["volumeMounts"].as_array_mut().unwrap();
            mounts.sort_by_key(by_name);
        }
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
    let text = text(&objects.of_kind("ConfigMap")[0]["data"]["config.toml"]);
    let config = load_config(&objects);
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

/// Returns the configuration of the nodes as they read it.
fn load_config(objects: &Objects) -> Config {
    let text = text(&objects.of_kind("ConfigMap")[0]["data"]["config.toml"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, text).unwrap();
    Config::load(Some(&file)).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A table or a key counts if TOML has it, and not if only the text of a comment does. A Helm that
/// cannot read TOML finds the same, but for a table that is a value.
#[test]
fn the_record_of_another_kubelet_is_configured_unless_config_has_it() {
    let record = "/var/lib/k0s/kubelet/device-plugins/kubelet_internal_checkpoint";
    let own = "/srv/checkpoint";
    let table = "trust = { kubelet_checkpoint = '/srv/checkpoint' }";
    for (config, wanted) in [
        ("", record),
        ("# [trust] kubelet_checkpoint follows kubeletDir", record),
        ("# See [trust].\nlog_level = 'info'", record),
        ("[class.hailo]\nonly = [] # [trust]", record),
        ("[trust]\nkubelet_checkpoint = '/srv/checkpoint'", own),
        ("[ trust ]\n'kubelet_checkpoint' = '/srv/checkpoint'", own),
        ("trust.kubelet_checkpoint = '/srv/checkpoint'", own),
        (table, own),
    ] {
        let values = json!({"kubeletDir": "/var/lib/k0s/kubelet", "config": config});
        let Some(objects) = render(&values) else {
            return;
        };
        let mut rendered = vec![objects];
        if config != table {
            let old = chart_with_file(&values, CHECKS, &checks_without_toml());
            rendered.extend(old.unwrap().map(Objects::from_documents));
        }
        for objects in rendered {
            let checkpoint = load_config(&objects).trust.kubelet_checkpoint;
            assert_eq!(checkpoint.to_str(), Some(wanted), "{config}");
        }
    }
}

/// The directories of class files are those of `config`, if it has them.
#[test]
fn other_directories_of_classes_are_kept() {
    for (config, count) in [("# classes = []", 2), ("classes = ['/srv/classes']", 1)] {
        let values = json!({"installDir": "/data/boathook", "configDir": "/data/etc/boathook",
                            "config": config});
        let old = chart_with_file(&values, CHECKS, &checks_without_toml());
        let old = old.unwrap().map(Objects::from_documents);
        for objects in render(&values).into_iter().chain(old) {
            assert_eq!(load_config(&objects).classes.len(), count, "{config}");
        }
    }
}

#[test]
fn own_class_files_are_in_their_config_map() {
    let class = "version = 1\nresource = \"x.com/chip\"\n";
    let Some(objects) = render(&json!({"classes": {"own": {"mychip": class}}})) else {
        return;
    };
    references::check(&objects, &config_maps(&objects));
    let classes = &objects.of_kind("ConfigMap")[1]["data"];
    assert_eq!(classes["mychip.toml"], class);
    let checksum = |objects: &Objects| {
        let template = &objects.only("DaemonSet")["spec"]["template"];
        template["metadata"]["annotations"].clone()
    };
    let without = render(&json!({})).unwrap();
    // With an unchanged checksum, Kubernetes would not restart the pods with the new classes.
    assert_ne!(checksum(&objects), checksum(&without));
}

/// YAML would take the blanks of a first line for the indentation of all lines.
#[test]
fn own_class_files_have_their_text_also_if_its_first_line_is_indented() {
    for text in [
        "  version = 1\nresource = \"x.com/chip\"\n",
        "\tversion = 1\n",
        "\n    # A comment.\nversion = 1\n\n  resource = \"x.com/chip\"\n",
    ] {
        let values = json!({"classes": {"own": {"mychip": text, "other": "version = 1\n"}}});
        let Some(objects) = render(&values) else {
            return;
        };
        let classes = &objects.of_kind("ConfigMap")[1]["data"];
        assert_eq!(classes["mychip.toml"], text);
        assert_eq!(classes["other.toml"], "version = 1\n");
    }
}

#[test]
fn every_value_has_its_effect() {
    let Some(plain) = render(&json!({})) else {
        return;
    };
    let wanted = "run --config=/config/config.toml --host-root=/host \
                  --release=boathook-system/boathook --probes=[::]:9910";
    assert_eq!(arguments(&plain).join(" "), wanted);
    let with = |values: Value| {
        let objects = render(&values).unwrap();
        references::check_volumes(objects.pod(), &config_maps(&objects));
        objects
    };
    let digest = format!("sha256:{}", "0".repeat(64));
    let by_tag = json!({"repository": "r.example/b", "tag": "1"});
    for (image, wanted) in [
        (by_tag, "r.example/b:1".to_owned()),
        (json!({"digest": digest}), format!("boathook@{digest}")),
    ] {
        let objects = with(json!({"image": image}));
        for container in references::containers(objects.pod()) {
            assert_eq!(container["image"], wanted);
        }
    }
    let secrets = with(json!({"image": {"pullSecrets": ["one"]}}));
    assert!(secrets.only("ServiceAccount")["imagePullSecrets"].is_array());
    let options = with(json!({
        "logFormat": "json", "logLevel": "debug", "takeOver": true, "register": "watcher",
        "kubeletDir": "/k",
    }));
    let wanted = "--kubelet-dir=/k --register=watcher --take-over --log-level=debug \
                  --log-format=json --probes=[::]:9910";
    assert_eq!(arguments(&options)[4..].join(" "), wanted);
    assert!(mount_at(options.plugin(), "/k/plugins_registry").is_some());
    let scheduling = with(json!({
        "nodeSelector": {"a": "b"}, "tolerations": [], "priorityClassName": "mine",
    }));
    let pod = scheduling.pod();
    assert_eq!(pod["nodeSelector"]["a"], "b");
    assert_eq!(pod["tolerations"], Value::Null);
    assert_eq!(pod["priorityClassName"], "mine");
    assert!(scheduling.of_kind("PriorityClass").is_empty());
    let restart = with(json!({"engine": "containerd", "restartEngine": true}));
    assert_eq!(words(&restart.init()["args"]).last(), Some(&"--restart"));
    let programs = with(json!({"hostPrograms": true}));
    assert_eq!(programs.plugin()["securityContext"]["privileged"], true);
    let without = with(json!({"engine": "containerd", "runtimeClass": {"create": false}}));
    assert!(without.of_kind("RuntimeClass").is_empty());
    let nodes = json!({"nodeSelector": {"pool": "old"}, "as": ["nvidia"]});
    let on_nodes = with(json!({"engine": "containerd", "runtimeClass": nodes}));
    let classes = on_nodes.of_kind("RuntimeClass");
    assert_eq!(classes.len(), 2);
    for class in classes {
        assert_eq!(class["scheduling"]["nodeSelector"]["pool"], "old");
    }
    for (engine, handler, is_told) in [("cdi", "runc", false), ("crio", "nvidia", true)] {
        let names = json!({"engine": engine, "runtimeClass": {"create": false, "as": ["nvidia"]}});
        let objects = with(names);
        let class = objects.only("RuntimeClass");
        assert_eq!(class["metadata"]["name"], "nvidia");
        assert_eq!(class["handler"], handler, "{engine}");
        let init = words(&objects.init()["args"]);
        assert_eq!(init.contains(&"--as=nvidia"), is_told, "{engine}");
    }
    let limits = with(json!({"resources": {"plugin": {"limits": {"memory": "128Mi"}}}}));
    assert_eq!(limits.plugin()["resources"]["limits"]["memory"], "128Mi");
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
    plain.only("DaemonSet");
    references::check_follower(&objects, &plain);
    uninstalled.only("DaemonSet");
}

/// The plugin writes CDI specifications only if no handler brings the hook, and not during an
/// uninstallation. The init container `check-engine` queries the engine before the plugin starts.
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
        let directory = mount_at(objects.plugin(), "/var/run/cdi");
        let is_writable = directory.map(|mount| mount["readOnly"] != true);
        assert_eq!(is_writable, written.then_some(true), "{engine}");
        let asked = named(&objects.pod()["initContainers"], "check-engine");
        assert_eq!(asked.is_some(), written, "{engine}");
        let by_handler = arguments(&objects).contains(&"--delivery=handler");
        assert_eq!(by_handler, engine != "cdi");
    }
}

#[test]
fn monitoring_has_a_port_and_a_pod_monitor() {
    let values = json!({"monitoring": {"enabled": true, "port": 9000, "podMonitor": true}});
    let Some(objects) = render(&values) else {
        return;
    };
    assert_eq!(arguments(&objects)[5], "--http=[::]:9000");
    references::check_monitoring(&objects);
    references::check_probes(&objects);
    assert!(objects.of_kind("NetworkPolicy").is_empty());
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

/// The file is removed by the uninstallation, also from a directory of its own.
#[test]
fn nodes_are_labelled_if_that_is_asked_for() {
    let usual = "/etc/kubernetes/node-feature-discovery/features.d";
    for directory in [usual, "/var/lib/nfd"] {
        let with = |uninstall: bool| {
            let values = json!({
                "nodeLabels": true, "nodeLabelsDir": directory, "uninstall": uninstall,
            });
            render(&values)
        };
        let (Some(objects), Some(uninstalled)) = (with(false), with(true)) else {
            return;
        };
        references::check(&objects, &config_maps(&objects));
        references::check_node_labels(&objects, directory);
        references::check(&uninstalled, &config_maps(&uninstalled));
        let init = uninstalled.init();
        let mut mounts = ["/etc", directory].into_iter();
        let mounted = mounts.any(|path| {
            directory.starts_with(path) && mount_at(init, &format!("/host{path}")).is_some()
        });
        assert!(mounted, "{directory}");
        let option = format!("--node-labels={directory}/boathook");
        let is_named = words(&init["args"]).contains(&&*option);
        assert_eq!(is_named, directory != usual, "{directory}");
    }
}

#[test]
fn it_uninstalls_with_the_image_that_is_there() {
    let Some(objects) = render(&json!({"uninstall": true, "engine": "crio"})) else {
        return;
    };
    references::check(&objects, &config_maps(&objects));
    let (init, waiting) = (objects.init(), objects.plugin());
    assert_eq!(init["args"][0], "uninstall");
    assert_eq!(waiting["image"], init["image"]);
    assert_eq!(arguments(&objects), ["wait"]);
    assert_eq!(waiting["livenessProbe"], Value::Null);
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
        json!({"classes": {"enabled": ["hailo"], "disabled": ["hailo"]}}),
        json!({"replicas": {"hailo": 2}, "config": "[class.\"hailo\"]\nexcept = []"}),
        json!({"replicas": {"hailo": 2}, "config": "[ class . 'hailo' ]\nexcept = []"}),
        json!({"replicas": {"hailo": 2}, "config": "[class]\nb = { except = [] }"}),
        json!({"nodeSelector": {"pool": 1}}),
        json!({"nodeSelector": {"gpu": true}}),
        json!({"podAnnotations": {"a": 1}}),
        json!({"monitoring": {"enabled": true, "port": 9910}}),
        json!({"podLabels": {"app.kubernetes.io/name": "mine"}}),
        json!({"podLabels": {"app.kubernetes.io/instance": "mine"}}),
        json!({"commonLabels": {"app.kubernetes.io/instance": "mine"}}),
        json!({"fullnameOverride": "Mine"}),
        json!({"fullnameOverride": "a".repeat(51)}),
        json!({"affinity": {"nodeSelectorTerms": []}}),
        json!({"updateStrategy": {"maxSurge": 1}}),
        json!({"serviceAccount": {"create": "no"}}),
        json!({"extraArgs": {"plugin": "--rescan=1"}}),
        json!({"extraEnv": {"plugin": {"A": "b"}}}),
        json!({"classes": {"own": {"large": "#".repeat(1_000_001)}}}),
    ];
    assert_eq!(accepted(&wrong).unwrap(), None);
}

/// A comment with the header of a table is no table.
#[test]
fn values_that_look_like_wrong_ones_are_accepted() {
    for values in [
        json!({"replicas": {"hailo": 2}, "config": "# [class.hailo] is written by replicas\nlog_level = \"info\""}),
        json!({"replicas": {"sriov-vfio": 2}, "config": "[class.sriov-vfio-parts]\nexcept = []"}),
        json!({"config": "[class]\nhailo = { except = [] }"}),
        json!({"podLabels": {"team": "a"}, "monitoring": {"enabled": true, "port": 9912}}),
    ] {
        if render(&values).is_none() {
            return;
        }
    }
}

#[test]
fn the_example_of_argo_cd_has_values_that_the_chart_accepts() {
    let example = fs::read_to_string(repository("deploy/gitops/argo-cd.yaml")).unwrap();
    let application = documents(&example).unwrap().remove(0);
    let source = &application["spec"]["source"];
    assert!(
        repository(text(&source["path"]))
            .join("Chart.yaml")
            .exists()
    );
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(source["targetRevision"], version);
    if let Some(objects) = render(&source["helm"]["valuesObject"]) {
        references::check(&objects, &config_maps(&objects));
    }
}

#[test]
fn the_examples_of_values_are_accepted() {
    let mut count = 0;
    for entry in fs::read_dir(repository("deploy/helm/examples")).unwrap() {
        let path = entry.unwrap().path();
        let values = documents(&fs::read_to_string(&path).unwrap()).unwrap();
        let Some(rendered) = chart(&values[0]).unwrap() else {
            return;
        };
        if let Some(result) = validate(&rendered, "1.33").unwrap() {
            assert_eq!(result, Ok(()), "{}", path.display());
        }
        load_config(&Objects::from_documents(rendered));
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn the_chart_is_of_this_version() {
    let chart = fs::read_to_string(repository("deploy/helm/Chart.yaml")).unwrap();
    let chart = documents(&chart).unwrap().remove(0);
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}
