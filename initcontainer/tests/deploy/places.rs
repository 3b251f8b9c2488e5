//! Tests of nodes whose /opt and /etc cannot be written to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use harness::manifests::{accepted, chart};
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

/// boathook-init writes to the usual paths of its container, which are other directories of the
/// host. The plugin, the hook and the engine have to find these.
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
    let hook = on_host(&installed, "/host/opt/boathook/current/bin/boathook-hook");
    assert_eq!(Path::new(&option("--hook=")), hook);
    let config = on_host(&installed, "/host/etc/boathook/config.toml");
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
        "/host/opt/boathook/current/classes.d",
        "/host/etc/boathook/classes.d",
    ];
    let classes = classes.map(|path| on_host(&installed, path));
    assert_eq!(config.classes, classes);
    for path in &config.mounted_at(Path::new("/host")).classes {
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

#[test]
fn the_uninstallation_finds_it_there() {
    let Some(objects) = render(&json!({"uninstall": true, "nodeLabels": true})) else {
        return;
    };
    references::check_volumes(objects.pod(), &config_maps(&objects));
    let mounted = host_directories(&objects, objects.init());
    for (path, directory) in [
        ("/host/opt/boathook", "/var/lib/boathook"),
        ("/host/etc/boathook", "/var/lib/boathook-config/boathook"),
        ("/host/var/run/cdi", "/var/cdi/dynamic"),
        (
            "/host/etc/kubernetes/node-feature-discovery/features.d",
            "/etc/kubernetes/node-feature-discovery/features.d",
        ),
    ] {
        assert_eq!(on_host(&mounted, path), Path::new(directory), "{path}");
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

/// What calls the programs at their usual place would not find them.
#[test]
fn what_needs_the_usual_place_is_refused() {
    let with = |key: &str, value: Value| json!({"installDir": "/var/lib/boathook", key: value});
    let wrong = [
        with("engine", json!("containerd")),
        with("follow", json!({"enabled": true})),
        with("plugin", json!({"hostService": true})),
        json!({"installDir": "/var/lib/other"}),
        json!({"configDir": "boathook"}),
        json!({"cdiDir": "/var/run/cdi/"}),
    ];
    assert_eq!(accepted(&wrong).unwrap(), None);
}
