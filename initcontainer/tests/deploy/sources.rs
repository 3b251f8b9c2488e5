//! Tests of the manifests as they are written, before rendering.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::config::InstalledDirectories;
use harness::manifests::{documents, repository};
use initcontainer::layout::format_default_config;
use serde_json::Value;

use crate::manifest::{Objects, list, manifests, name, text};
use crate::references;

fn kustomization(dir: &str) -> Value {
    let text = fs::read_to_string(repository(dir).join("kustomization.yaml")).unwrap();
    documents(&text).unwrap().remove(0)
}

/// Returns the names of the ConfigMaps that a kustomization generates.
fn generated(dir: &str) -> BTreeSet<String> {
    let kustomization = kustomization(dir);
    let generators = list(&kustomization["configMapGenerator"]);
    generators.map(|g| text(&g["name"]).to_owned()).collect()
}

#[test]
fn the_base_refers_to_what_there_is() {
    let objects = Objects::read("deploy/base");
    references::check(&objects, &generated("deploy/base"));
    let namespace = name(objects.only("Namespace"));
    assert_eq!(kustomization("deploy/base")["namespace"], namespace);
}

#[test]
fn every_resource_of_the_base_is_listed() {
    let base = repository("deploy/base");
    let kustomization = kustomization("deploy/base");
    let listed = list(&kustomization["resources"]);
    let listed: BTreeSet<_> = listed.map(|file| base.join(text(file))).collect();
    for file in manifests(&base) {
        assert!(listed.contains(&file), "{}", file.display());
    }
    assert!(listed.iter().all(|path| path.exists()), "{listed:?}");
}

#[test]
fn the_image_is_of_this_version() {
    let image = kustomization("deploy/base")["images"][0].clone();
    assert_eq!(image["newTag"], env!("CARGO_PKG_VERSION"));
    for container in references::containers(Objects::read("deploy/base").pod()) {
        assert_eq!(container["image"], image["name"]);
    }
}

#[test]
fn the_image_holds_every_program_that_is_named() {
    let script = fs::read_to_string(repository("initcontainer/image-files")).unwrap();
    let mut lines = script.lines();
    let line = lines.find(|line| line.starts_with("for program in"));
    let programs: Vec<_> = line.unwrap().split([' ', ';']).collect();
    for container in references::containers(Objects::read("deploy/base").pod()) {
        let command = text(&container["command"][0]);
        let program = command.strip_prefix("/boathook/bin/").unwrap();
        assert!(programs.contains(&program), "{program}");
    }
}

#[test]
fn both_ways_to_build_the_image_end_alike() {
    let last_stage = |name: &str| {
        let text = fs::read_to_string(repository("initcontainer").join(name)).unwrap();
        let start = text.rfind("FROM scratch").unwrap();
        text[start..].replace("--from=build /image", ".")
    };
    assert_eq!(last_stage("Dockerfile"), last_stage("Dockerfile.prebuilt"));
}

#[test]
fn the_configurations_are_what_the_programs_read() {
    let plugin = fs::read_to_string(repository("deploy/base/plugin.toml")).unwrap();
    let plugin = Config::parse(Path::new("plugin.toml"), &plugin).unwrap();
    // The hook reads the same text on the host.
    assert_eq!(plugin.host_root, Path::new("/"));
    let plugin = plugin.with_root_prefix(Path::new("/host"));
    assert_eq!(plugin.host_root, Path::new("/host"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(
        &file,
        format_default_config(&InstalledDirectories::default()),
    )
    .unwrap();
    let host = Config::load(Some(&file)).unwrap();
    assert!(host.classes[0].starts_with(InstalledDirectories::default().programs_dir));
    // The plugin reads the same class files as the hook.
    let mounted = |c: &PathBuf| Path::new("/host").join(c.strip_prefix("/").unwrap());
    let seen: Vec<_> = host.classes.iter().map(mounted).collect();
    assert_eq!(seen, plugin.classes);
}

#[test]
fn the_examples_ask_for_what_a_class_offers() {
    let objects = Objects::read("deploy/examples");
    let pods = objects.of_kind("Pod");
    assert_eq!(pods.len(), 39);
    for pod in pods {
        let (name, spec) = (name(pod), &pod["spec"]);
        assert_eq!(spec["runtimeClassName"], Value::Null, "{name}");
        let offered = inventories(&repository("device-class/testdata").join(name));
        let limits = &spec["containers"][0]["resources"]["limits"];
        for resource in limits.as_object().unwrap().keys() {
            let mut words = offered.split_whitespace();
            assert!(words.any(|word| word == resource), "{name}: {resource}");
        }
    }
}

/// Returns a text with the devices of the class on each of its recorded hosts.
fn inventories(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &inventories(&path);
        } else if path.ends_with("inventory.txt") {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    text
}
