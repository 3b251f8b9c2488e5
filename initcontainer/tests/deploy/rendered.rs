//! Tests of the overlays, as `kubectl kustomize` renders them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::manifests::{documents, kustomized, repository};
use serde_json::{Value, json};

use crate::manifest::{Objects, list, mount_at, name, named, text, words};
use crate::references;

/// The directory of Node Feature Discovery.
const FEATURES: &str = "/etc/kubernetes/node-feature-discovery/features.d";

/// Renders a kustomization. Returns `None` without kubectl; the test is skipped then.
pub(crate) fn render(directory: &Path) -> Option<Objects> {
    kustomized(directory).unwrap().map(Objects::from_documents)
}

/// Returns the names of the ConfigMaps.
pub(crate) fn config_maps(objects: &Objects) -> BTreeSet<String> {
    let maps = objects.of_kind("ConfigMap").into_iter();
    maps.map(|map| name(map).to_owned()).collect()
}

fn check(objects: &Objects) {
    references::check(objects, &config_maps(objects));
    references::check_configuration(objects);
    let tag = format!("boathook:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(objects.init()["image"], tag);
}

fn overlays() -> Vec<PathBuf> {
    let entries = fs::read_dir(repository("deploy/overlays")).unwrap();
    let overlays: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    assert_eq!(overlays.len(), 5);
    overlays
}

#[test]
fn every_overlay_can_be_turned_around() {
    for overlay in overlays() {
        let name = overlay.file_name().unwrap();
        let Some(objects) = render(&repository("deploy/uninstall").join(name)) else {
            return;
        };
        check(&objects);
        let (init, waiting) = (objects.init(), objects.plugin());
        assert_eq!(init["args"][0], "uninstall");
        assert_eq!(waiting["image"], init["image"], "no other image is pulled");
        assert_eq!(waiting["command"], json!(["/boathook/bin/boathook-init"]));
        assert_eq!(waiting["args"], json!(["wait"]));
    }
}

/// A patch replaces the list of arguments as a whole.
#[test]
fn every_overlay_installs_with_the_options_of_the_base() {
    let base = Objects::read("deploy/base");
    let common = |objects: &Objects| -> BTreeSet<String> {
        let options = words(&objects.init()["args"]).into_iter();
        options
            .filter(|option| !option.starts_with("--engine="))
            .map(str::to_owned)
            .collect()
    };
    let wanted = common(&base);
    assert!(wanted.contains("--release=boathook-system/boathook"));
    for overlay in overlays() {
        let Some(objects) = render(&overlay) else {
            return;
        };
        assert_eq!(common(&objects), wanted, "{}", overlay.display());
    }
}

/// Returns the relative path from one directory to another.
fn relative(from: &Path, to: &Path) -> String {
    let (from, to) = (from.canonicalize().unwrap(), to.canonicalize().unwrap());
    let both = from.components().zip(to.components());
    let common = both.take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| "..".as_ref());
    let down = to.components().skip(common).map(|c| c.as_os_str());
    let way: PathBuf = up.chain(down).collect();
    way.to_str().unwrap().to_owned()
}

/// Renders a kustomization of an overlay and of the text `more`. `DEPLOY` in the text stands for the
/// directory `deploy`.
fn render_with(overlay: &str, more: &str) -> Option<Objects> {
    render_documents(overlay, more).map(Objects::from_documents)
}

/// Returns the objects that [`render_with`] renders as they are.
pub(crate) fn render_documents(overlay: &str, more: &str) -> Option<Vec<Value>> {
    // A kustomization can name its parts only by relative paths.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = format!("resources: [DEPLOY/overlays/{overlay}]\n{more}");
    let deploy = relative(dir.path(), &repository("deploy"));
    let file = dir.path().join("kustomization.yaml");
    fs::write(file, text.replace("DEPLOY", &deploy)).unwrap();
    fs::write(dir.path().join("mychip.toml"), "version = 1\n").unwrap();
    kustomized(dir.path()).unwrap()
}

/// Each component has its effect in every overlay.
#[test]
fn every_component_fits_every_overlay() {
    for overlay in overlays() {
        let name = overlay.file_name().unwrap().to_str().unwrap();
        let with = |component: &str| {
            let more = format!("components: [DEPLOY/components/{component}]\n");
            render_with(name, &more)
        };
        let Some(plain) = render(&overlay) else {
            return;
        };
        check(&plain);
        references::check_engine(&plain);
        references::check_probes(&plain);
        let asked = named(&plain.pod()["initContainers"], "check-engine");
        assert_eq!(asked.is_some(), name == "cdi", "{name}");
        assert!(!offers_test_class(&plain));
        assert!(offers_test_class(&with("dummy-npu").unwrap()));
        runs_programs_of_the_host(&with("host-programs").unwrap());
        references::check_follower(&with("follow").unwrap(), &plain);
        for (component, checks) in [
            ("monitoring", references::check_monitoring as fn(&Objects)),
            ("watcher", is_found_by_the_watcher),
            ("node-labels", writes_labels),
            ("host-groups", |objects| {
                references::check_groups(objects.pod(), true)
            }),
            ("canary", is_on_canaries),
            ("restart", restarts_the_engine),
            ("metrics-policy", is_read_by_the_watchers),
        ] {
            let objects = with(component).unwrap();
            check(&objects);
            checks(&objects);
        }
    }
}

fn runs_programs_of_the_host(objects: &Objects) {
    references::check_volumes(objects.pod(), &config_maps(objects));
    references::check_engine(objects);
    let plugin = objects.plugin();
    assert_eq!(plugin["securityContext"]["privileged"], true);
    // No other mount covers a part of the host's tree.
    assert_eq!(mount_at(plugin, "/host").unwrap()["readOnly"], Value::Null);
    let mut mounts = list(&plugin["volumeMounts"]);
    assert!(!mounts.any(|mount| text(&mount["mountPath"]).starts_with("/host/")));
}

fn is_found_by_the_watcher(objects: &Objects) {
    let plugin = objects.plugin();
    assert!(words(&plugin["args"]).contains(&"--register=watcher"));
    assert!(mount_at(plugin, "/var/lib/kubelet/plugins_registry").is_some());
}

fn writes_labels(objects: &Objects) {
    references::check_node_labels(objects, FEATURES);
}

fn is_read_by_the_watchers(objects: &Objects) {
    let labels = json!({"kubernetes.io/metadata.name": "monitoring"});
    let peer = json!({"namespaceSelector": {"matchLabels": labels}});
    references::check_metrics_policy(objects, 9911, &peer);
}

fn is_on_canaries(objects: &Objects) {
    assert_eq!(objects.pod()["nodeSelector"]["boathook.dev/canary"], "true");
}

fn restarts_the_engine(objects: &Objects) {
    references::check_engine(objects);
    let init = objects.init();
    assert_eq!(words(&init["args"]).last(), Some(&"--restart"));
    assert_eq!(mount_at(init, "/host").unwrap()["name"], "host");
}

fn offers_test_class(objects: &Objects) -> bool {
    let mut maps = objects.of_kind("ConfigMap").into_iter();
    let map = maps.find(|map| name(map).starts_with("boathook-plugin"));
    text(&map.unwrap()["data"]["config.toml"]).contains("[class.dummy-npu]\nenabled = true\n")
}

#[test]
fn files_of_a_release_are_the_overlay_for_cdi_and_its_uninstallation() {
    for (argument, directory) in [
        (None, "deploy/overlays/cdi"),
        (Some("uninstall"), "deploy/uninstall/cdi"),
    ] {
        let Some(overlay) = render(&repository(directory)) else {
            return;
        };
        let mut script = Command::new(repository("scripts/install-yaml"));
        let text = String::from_utf8(script.args(argument).output().unwrap().stdout).unwrap();
        let made = Objects::from_documents(documents(&text).unwrap());
        check(&made);
        for kind in ["DaemonSet", "ConfigMap", "RuntimeClass", "Namespace"] {
            assert_eq!(made.of_kind(kind), overlay.of_kind(kind), "{kind}");
        }
    }
}

#[test]
fn own_class_files_are_merged_into_their_config_map() {
    let more = "namespace: boathook-system\nconfigMapGenerator:\n\
                - {name: boathook-classes, behavior: merge, files: [mychip.toml]}\n";
    let Some(objects) = render_with("containerd", more) else {
        return;
    };
    check(&objects);
    let mut maps = objects.of_kind("ConfigMap").into_iter();
    assert!(maps.any(|map| map["data"]["mychip.toml"].is_string()));
}
