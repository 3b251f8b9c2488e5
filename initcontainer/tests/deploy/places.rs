//! Tests of nodes whose /opt and /etc cannot be written to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use harness::manifests::{accepted, chart, helm_with_file};
use serde_json::{Value, json};

use crate::manifest::{Objects, list, name, named, pod, text, words};
use crate::references;
use crate::rendered::config_maps;

fn moved() -> Value {
    json!({
        "installDir": "/var/lib/boathook",
        "configDir": "/var/lib/boathook-config/boathook",
        "cdiDir": "/var/cdi/dynamic",
    })
}

fn render(more: &Value) -> Option<Objects> {
    let mut values = moved();
    let more = more.as_object().unwrap().clone();
    values.as_object_mut().unwrap().extend(more);
    chart(&values).unwrap().map(Objects::from_documents)
}

/// Returns the directories of the host by the paths at which a container has them.
fn host_directories(objects: &Objects, container: &Value) -> BTreeMap<String, String> {
    list(&container["volumeMounts"])
        .filter_map(|mount| {
            let volume = named(&objects.pod()["volumes"], text(&mount["name"])).unwrap();
            let path = volume["hostPath"]["path"].as_str()?;
            Some((text(&mount["mountPath"]).to_owned(), path.to_owned()))
        })
        .collect()
}

/// Returns the path on the host of a path in a container.
fn on_host(directories: &BTreeMap<String, String>, path: &str) -> PathBuf {
    let mut mounts = directories.iter().rev();
    let (mount, directory) = mounts
        .find(|(mount, _)| Path::new(path).starts_with(mount))
        .unwrap();
    Path::new(directory).join(Path::new(path).strip_prefix(mount).unwrap())
}

/// boathook-init writes below /host, at the paths that the host has. The plugin, the hook and the engine
/// have to find what it writes.
#[test]
fn what_is_installed_is_where_hook_and_plugin_look() {
    let Some(objects) = render(&json!({})) else {
        return;
    };
    references::check_volumes(objects.pod(), &config_maps(&objects));
    let installed = host_directories(&objects, objects.init());
    let plugin = host_directories(&objects, objects.plugin());
    let arguments = words(&objects.plugin()["args"]);
    let option = |name: &str| {
        let mut found = arguments.iter().filter_map(|word| word.strip_prefix(name));
        found.next().unwrap().to_owned()
    };
    let installer = words(&objects.init()["args"]);
    assert!(
        installer.contains(&"--prefix=/var/lib/boathook"),
        "{installer:?}"
    );
    let configuration = "--config-dir=/var/lib/boathook-config/boathook";
    assert!(installer.contains(&configuration), "{installer:?}");
    let hook = on_host(
        &installed,
        "/host/var/lib/boathook/current/bin/boathook-hook",
    );
    assert_eq!(Path::new(&option("--hook=")), hook);
    let config = on_host(
        &installed,
        "/host/var/lib/boathook-config/boathook/config.toml",
    );
    assert_eq!(Path::new(&option("--hook-config=")), config);
    // The plugin uses the installed configuration in place of a given one with a mistake.
    let seen = format!("/host{}", config.display());
    assert_eq!(on_host(&plugin, &seen), config);
    assert_eq!(plugin[&option("--cdi=")], "/var/cdi/dynamic");
    let written = text(&objects.of_kind("ConfigMap")[0]["data"]["config.toml"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, written).unwrap();
    let config = Config::load(Some(&file)).unwrap();
    let classes = [
        "/host/var/lib/boathook/current/classes.d",
        "/host/var/lib/boathook-config/boathook/classes.d",
    ];
    let classes = classes.map(|path| on_host(&installed, path));
    assert_eq!(config.classes, classes);
    for path in &config.with_root_prefix(Path::new("/host")).classes {
        let path = path.to_str().unwrap();
        assert!(classes.contains(&on_host(&plugin, path)), "{path}");
    }
}

/// The driver of claims writes specifications of its own, and reads the same classes.
#[test]
fn the_driver_of_claims_looks_there_too() {
    let Some(objects) =
        render(&json!({"classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]}}))
    else {
        return;
    };
    let sets = objects.of_kind("DaemonSet").into_iter();
    let mut drivers = sets.filter(|set| name(set) == "boathook-dra");
    let pod = pod(drivers.next().unwrap());
    references::check_volumes(pod, &config_maps(&objects));
    let container = &pod["containers"][0];
    let arguments = words(&container["args"]);
    for wanted in [
        "--hook=/var/lib/boathook/current/bin/boathook-hook",
        "--hook-config=/var/lib/boathook-config/boathook/config.toml",
        "--cdi=/var/cdi/dynamic",
    ] {
        assert!(arguments.contains(&wanted), "{arguments:?}");
    }
    for (volume, directory) in [
        ("programs", "/var/lib/boathook"),
        ("config", "/var/lib/boathook-config/boathook"),
    ] {
        let on_host = &named(&pod["volumes"], volume).unwrap()["hostPath"]["path"];
        assert_eq!(on_host, directory);
        let mount = &named(&container["volumeMounts"], volume).unwrap()["mountPath"];
        assert_eq!(mount, &json!(format!("/host{directory}")));
    }
}

/// The record of the directories tells the wrapper runtime, units and the follower where they are.
#[test]
fn what_the_engine_and_services_call_is_there_with_each_way_of_installing() {
    let ways = [
        json!({"engine": "containerd", "restartEngine": true}),
        json!({"engine": "crio"}),
        json!({"engine": "k3s", "follow": {"enabled": true}}),
        json!({"follow": {"enabled": true}}),
        json!({"plugin": {"hostService": true}, "cdiDir": "/var/run/cdi"}),
        json!({"engine": "rke2", "plugin": {"hostService": true}, "cdiDir": "/var/run/cdi"}),
    ];
    let uninstall = |way: &Value| {
        let mut way = way.clone();
        way["uninstall"] = json!(true);
        way["nodeLabels"] = json!(way["plugin"].is_null());
        way
    };
    for way in ways.iter().cloned().chain(ways.iter().map(uninstall)) {
        let Some(objects) = render(&way) else {
            return;
        };
        references::check_volumes(objects.pod(), &config_maps(&objects));
        let mounted = host_directories(&objects, objects.init());
        for (path, directory) in [
            ("/host/var/lib/boathook", "/var/lib/boathook"),
            (
                "/host/var/lib/boathook-config/boathook",
                "/var/lib/boathook-config/boathook",
            ),
            ("/host/var/lib/boathook.toml", "/var/lib/boathook.toml"),
        ] {
            assert_eq!(on_host(&mounted, path), Path::new(directory), "{way}");
        }
        if way["uninstall"] == true {
            // A directory that is mounted by itself cannot be removed.
            let is_own = |path: &String| path.ends_with("/boathook");
            assert_eq!(mounted.keys().find(|path| is_own(path)), None, "{way}");
            let specifications = way["cdiDir"].as_str().unwrap_or("/var/cdi/dynamic");
            assert_eq!(mounted["/host/var/run/cdi"], specifications, "{way}");
            let labels = "/etc/kubernetes/node-feature-discovery/features.d";
            let labels_mount = mounted.get(&format!("/host{labels}"));
            let has_labels = way["nodeLabels"] == true;
            assert_eq!(labels_mount.is_some(), has_labels, "{way}");
        } else {
            let installer = words(&objects.init()["args"]);
            assert!(installer.contains(&"--prefix=/var/lib/boathook"), "{way}");
        }
    }
}

/// Kubernetes refuses two mounts at one path, and a mount would hide those in it that come before.
#[test]
fn directories_in_one_another_are_mounted_in_order() {
    for (programs, configuration) in [
        ("/var/lib/boathook", "/var/lib/boathook-config/boathook"),
        ("/data/boathook", "/data/etc/boathook"),
        ("/opt/boathook", "/var/lib/c/boathook"),
        ("/var/lib/x/boathook", "/etc/boathook"),
    ] {
        for is_uninstallation in [false, true] {
            let Some(objects) = render(&json!({
                "installDir": programs, "configDir": configuration, "uninstall": is_uninstallation,
            })) else {
                return;
            };
            let mounts = list(&objects.init()["volumeMounts"]);
            let paths: Vec<&str> = mounts.map(|mount| text(&mount["mountPath"])).collect();
            for (index, path) in paths.iter().enumerate() {
                let is_hidden = |later: &&str| Path::new(path).starts_with(later);
                assert_eq!(
                    paths[index + 1..].iter().find(|later| is_hidden(later)),
                    None
                );
            }
        }
    }
}

/// A pod with other directories would not see the record that the nodes have. The DaemonSet of the
/// cluster is that of a release with `before`.
#[test]
fn the_directories_of_nodes_change_only_after_an_uninstallation() {
    let with = |more: Value| {
        let mut values = moved();
        let more = more.as_object().unwrap().clone();
        values.as_object_mut().unwrap().extend(more);
        values
    };
    let elsewhere = json!({"configDir": "/data/boathook"});
    for (before, ready_pods, after, is_refused) in [
        (json!({}), 1, json!({}), false),
        (json!({}), 1, moved(), false),
        (moved(), 1, moved(), false),
        (moved(), 1, json!({}), true),
        (moved(), 1, with(elsewhere.clone()), true),
        (moved(), 1, json!({"uninstall": true}), true),
        (moved(), 1, with(json!({"uninstall": true})), false),
        (with(json!({"uninstall": true})), 1, json!({}), false),
        // No node could use them, so they are not in use.
        (moved(), 0, with(elsewhere), false),
    ] {
        let Some(objects) = chart(&before).unwrap().map(Objects::from_documents) else {
            return;
        };
        let mut set = objects.only("DaemonSet").clone();
        set["status"] = json!({"numberReady": ready_pods});
        let template = format!(
            "{{{{ include \"boathook.checkMove\" (dict \"root\" . \"set\" (fromJson {})) }}}}\n",
            json!(set.to_string())
        );
        let output = helm_with_file(&after, "templates/move.yaml", &template);
        let output = output.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !is_refused, "{after}: {text}");
        let wanted = "on the nodes, which would keep it";
        assert_eq!(text.contains(wanted), is_refused, "{after}: {text}");
    }
}

#[test]
fn directories_of_your_own_are_kept_in_the_configuration() {
    let Some(objects) = render(&json!({"config": "classes = ['/x']\n[trust]\ntrusted_pods = []"}))
    else {
        return;
    };
    let written = text(&objects.of_kind("ConfigMap")[0]["data"]["config.toml"]);
    assert_eq!(written.matches("classes =").count(), 1, "{written}");
}

#[test]
fn directories_that_the_installer_would_refuse_are_refused() {
    let wrong = [
        json!({"installDir": "/var/lib/other"}),
        json!({"configDir": "boathook"}),
        json!({"cdiDir": "/var/run/cdi/"}),
        json!({"installDir": "/run/boathook"}),
        json!({"installDir": "/var/lib/boathook", "configDir": "/tmp/boathook"}),
        json!({"installDir": "/var/lib/boathook", "configDir": "/var/lib/boathook/c/boathook"}),
        json!({"installDir": "/etc/boathook", "configDir": "/etc/boathook"}),
    ];
    assert_eq!(accepted(&wrong).unwrap(), None);
}
