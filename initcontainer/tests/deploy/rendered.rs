//! The overlays as `kubectl kustomize` renders them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::manifests::{documents, kustomized, repository};
use serde_json::json;

use crate::manifest::Objects;
use crate::references;

/// The objects of a kustomization; `None`, and the test is skipped, without kubectl.
pub(crate) fn render(directory: &Path) -> Option<Objects> {
    kustomized(directory).unwrap().map(Objects::of)
}

fn config_maps(objects: &Objects) -> BTreeSet<String> {
    let names = objects.config_maps.iter();
    names.map(|m| m.metadata.name.clone().unwrap()).collect()
}

fn check(objects: &Objects) {
    references::check(objects, &config_maps(objects));
    references::check_configuration(objects);
    for pod in objects.daemon_sets.iter().map(references::pod) {
        let tag = format!("boathook:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(pod.init_containers.as_ref().unwrap()[0].image, Some(tag));
    }
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
        let pod = references::pod(&objects.daemon_sets[0]);
        let init = &pod.init_containers.as_ref().unwrap()[0];
        assert_eq!(init.args.as_ref().unwrap()[0], "uninstall");
        let waiting = &pod.containers[0];
        assert_eq!(waiting.image, init.image, "no other image is pulled");
        assert_eq!(
            [&waiting.command, &waiting.args].map(|words| words.as_ref().unwrap().join(" ")),
            ["/boathook/bin/boathook-init", "wait"]
        );
    }
}

/// The way from one directory to another.
fn relative(from: &Path, to: &Path) -> String {
    let (from, to) = (from.canonicalize().unwrap(), to.canonicalize().unwrap());
    let common = from
        .components()
        .zip(to.components())
        .take_while(|(a, b)| a == b)
        .count();
    let up = from.components().skip(common).map(|_| "..".as_ref());
    let down = to.components().skip(common).map(|c| c.as_os_str());
    let way: PathBuf = up.chain(down).collect();
    way.to_str().unwrap().to_owned()
}

/// A kustomization of an overlay and `more`, a text in which `DEPLOY` is the directory.
fn render_with(overlay: &str, more: &str) -> Option<Objects> {
    // A kustomization names its parts by relative paths alone.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = format!("resources: [DEPLOY/overlays/{overlay}]\n{more}");
    let deploy = relative(dir.path(), &repository("deploy"));
    let file = dir.path().join("kustomization.yaml");
    fs::write(file, text.replace("DEPLOY", &deploy)).unwrap();
    fs::write(dir.path().join("mychip.toml"), "version = 1\n").unwrap();
    render(dir.path())
}

/// What the components change, each in every overlay.
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
        let pod = references::pod(&plain.daemon_sets[0]);
        let mut init = pod.init_containers.iter().flatten();
        let asked = init.any(|container| container.name == "check-engine");
        assert_eq!(asked, name == "cdi", "{name}");
        assert!(!offers_test_class(&plain));
        assert!(offers_test_class(&with("dummy-npu").unwrap()));
        runs_programs_of_the_host(&with("host-programs").unwrap());
        references::check_follower(&with("follow").unwrap(), &plain);
        for (component, checks) in [
            ("monitoring", references::check_monitoring as fn(&Objects)),
            ("watcher", is_found_by_the_watcher),
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
    let pod = references::pod(&objects.daemon_sets[0]);
    references::check_volumes(pod, &config_maps(objects));
    references::check_engine(objects);
    let plugin = &pod.containers[0];
    let context = plugin.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, Some(true));
    let mounts = plugin.volume_mounts.iter().flatten();
    let host = mounts.clone().find(|mount| mount.mount_path == "/host");
    // Nothing is over the host's tree, read-only or not.
    assert_eq!(host.unwrap().read_only, None);
    let below = mounts.filter(|mount| mount.mount_path.starts_with("/host/"));
    assert_eq!(below.count(), 0);
}

fn is_found_by_the_watcher(objects: &Objects) {
    let plugin = &references::pod(&objects.daemon_sets[0]).containers[0];
    let args = plugin.args.as_ref().unwrap();
    assert!(args.contains(&"--register=watcher".to_owned()));
    let mut mounts = plugin.volume_mounts.iter().flatten();
    assert!(mounts.any(|mount| mount.mount_path == "/var/lib/kubelet/plugins_registry"));
}

fn is_read_by_the_watchers(objects: &Objects) {
    let labels = json!({"kubernetes.io/metadata.name": "monitoring"});
    let peer = json!({"namespaceSelector": {"matchLabels": labels}});
    references::check_metrics_policy(objects, 9911, &peer);
}

fn is_on_canaries(objects: &Objects) {
    let pod = references::pod(&objects.daemon_sets[0]);
    let selector = pod.node_selector.as_ref().unwrap();
    assert_eq!(selector["boathook.dev/canary"], "true");
}

fn restarts_the_engine(objects: &Objects) {
    references::check_engine(objects);
    let pod = references::pod(&objects.daemon_sets[0]);
    let init = &pod.init_containers.as_ref().unwrap()[0];
    assert_eq!(init.args.as_ref().unwrap().last().unwrap(), "--restart");
    let mut mounts = init.volume_mounts.iter().flatten();
    let host = mounts.find(|mount| mount.mount_path == "/host");
    assert_eq!(host.unwrap().name, "host");
}

fn offers_test_class(objects: &Objects) -> bool {
    let mut maps = objects.config_maps.iter();
    let map = maps.find(|map| {
        let name = map.metadata.name.as_deref().unwrap();
        name.starts_with("boathook-plugin")
    });
    let text = &map.unwrap().data.as_ref().unwrap()["config.toml"];
    text.contains("[class.dummy-npu]\nenabled = true\n")
}

#[test]
fn install_yaml_is_the_overlay_for_cdi() {
    let Some(overlay) = render(&repository("deploy/overlays/cdi")) else {
        return;
    };
    let script = Command::new(repository("scripts/install-yaml")).output();
    let text = String::from_utf8(script.unwrap().stdout).unwrap();
    let made = Objects::of(documents(&text).unwrap());
    check(&made);
    assert_eq!(made.daemon_sets, overlay.daemon_sets);
    assert_eq!(made.config_maps, overlay.config_maps);
    assert_eq!(made.runtime_classes, overlay.runtime_classes);
}

#[test]
fn own_class_files_are_merged_into_their_config_map() {
    let more = "namespace: boathook-system\nconfigMapGenerator:\n\
                - {name: boathook-classes, behavior: merge, files: [mychip.toml]}\n";
    let Some(objects) = render_with("containerd", more) else {
        return;
    };
    check(&objects);
    let maps = objects.config_maps.iter();
    let mut data = maps.filter_map(|map| map.data.as_ref());
    assert!(data.any(|data| data.contains_key("mychip.toml")));
}
