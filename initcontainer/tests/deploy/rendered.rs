//! The overlays as `kubectl kustomize` renders them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::manifest::{Objects, repository};
use crate::references;

/// Whether there is a kubectl that knows kustomize's components; without one
/// the test is skipped. Those that do (1.24 and later) tell kustomize's version.
pub(crate) fn has_kubectl() -> bool {
    let output = Command::new("kubectl")
        .args(["version", "--client"])
        .output();
    let found =
        output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("Kustomize Version"));
    if !found {
        skip::report("rendered manifests", "needs kubectl 1.24 or later");
    }
    found
}

pub(crate) fn render(dir: &Path) -> Objects {
    let output = Command::new("kubectl")
        .arg("kustomize")
        .arg(dir)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", dir.display());
    let mut objects = Objects::default();
    objects.add(&String::from_utf8(output.stdout).unwrap());
    objects
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
fn every_overlay_mounts_what_its_engine_needs() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let objects = render(&overlay);
        check(&objects);
        references::check_engine(&objects);
        let pod = references::pod(&objects.daemon_sets[0]);
        let mut init = pod.init_containers.iter().flatten();
        let asked = init.any(|container| container.name == "check-engine");
        assert_eq!(asked, overlay.ends_with("cdi"), "{}", overlay.display());
    }
}

#[test]
fn every_overlay_can_be_turned_around() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let name = overlay.file_name().unwrap();
        let objects = render(&repository("deploy/uninstall").join(name));
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

fn with_component(overlay: &Path, component: &str) -> Objects {
    // A kustomization names its parts by relative paths alone.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let deploy = relative(dir.path(), &repository("deploy"));
    let name = overlay.file_name().unwrap().to_str().unwrap();
    let text = format!(
        "resources: [{deploy}/overlays/{name}]\ncomponents: [{deploy}/components/{component}]\n"
    );
    fs::write(dir.path().join("kustomization.yaml"), text).unwrap();
    render(dir.path())
}

#[test]
fn the_plugin_can_be_let_run_programs_of_the_host() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let objects = with_component(&overlay, "host-programs");
        let pod = references::pod(&objects.daemon_sets[0]);
        references::check_volumes(pod, &config_maps(&objects));
        references::check_engine(&objects);
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
}

#[test]
fn the_monitoring_component_fits_every_overlay() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let objects = with_component(&overlay, "monitoring");
        check(&objects);
        references::check_monitoring(&objects);
    }
}

#[test]
fn the_watcher_component_fits_every_overlay() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let objects = with_component(&overlay, "watcher");
        check(&objects);
        let plugin = &references::pod(&objects.daemon_sets[0]).containers[0];
        let args = plugin.args.as_ref().unwrap();
        assert!(args.contains(&"--register=watcher".to_owned()));
        let mut mounts = plugin.volume_mounts.iter().flatten();
        assert!(mounts.any(|mount| mount.mount_path == "/var/lib/kubelet/plugins_registry"));
    }
}

#[test]
fn the_canary_component_fits_every_overlay() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let objects = with_component(&overlay, "canary");
        check(&objects);
        let pod = references::pod(&objects.daemon_sets[0]);
        let selector = pod.node_selector.as_ref().unwrap();
        assert_eq!(selector["boathook.dev/canary"], "true");
    }
}

#[test]
fn install_yaml_is_the_overlay_for_cdi() {
    if !has_kubectl() {
        return;
    }
    let script = Command::new(repository("scripts/install-yaml")).output();
    let mut made = Objects::default();
    made.add(&String::from_utf8(script.unwrap().stdout).unwrap());
    check(&made);
    let overlay = render(&repository("deploy/overlays/cdi"));
    assert_eq!(made.daemon_sets, overlay.daemon_sets);
    assert_eq!(made.config_maps, overlay.config_maps);
    assert_eq!(made.runtime_classes, overlay.runtime_classes);
}

#[test]
fn own_class_files_are_merged_into_their_config_map() {
    if !has_kubectl() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let deploy = relative(dir.path(), &repository("deploy"));
    let text = format!(
        "namespace: boathook-system\nresources: [{deploy}/overlays/containerd]\n\
         configMapGenerator:\n  - {{name: boathook-classes, behavior: merge, files: [mychip.toml]}}\n"
    );
    fs::write(dir.path().join("kustomization.yaml"), text).unwrap();
    fs::write(dir.path().join("mychip.toml"), "version = 1\n").unwrap();
    let objects = render(dir.path());
    check(&objects);
    let mut maps = objects
        .config_maps
        .iter()
        .filter_map(|map| map.data.as_ref());
    assert!(maps.any(|data| data.contains_key("mychip.toml")));
}

#[test]
fn the_restart_component_fits_every_overlay() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let objects = with_component(&overlay, "restart");
        check(&objects);
        references::check_engine(&objects);
        let pod = references::pod(&objects.daemon_sets[0]);
        let init = &pod.init_containers.as_ref().unwrap()[0];
        assert_eq!(init.args.as_ref().unwrap().last().unwrap(), "--restart");
        let host = init
            .volume_mounts
            .iter()
            .flatten()
            .find(|m| m.mount_path == "/host");
        assert_eq!(host.unwrap().name, "host");
    }
}

#[test]
fn the_class_for_tests_is_advertised_only_where_it_is_switched_on() {
    for overlay in overlays().into_iter().filter(|_| has_kubectl()) {
        let offers = |objects: &Objects| {
            let mut maps = objects.config_maps.iter();
            let map = maps
                .find(|map| {
                    let name = map.metadata.name.as_deref().unwrap();
                    name.starts_with("boathook-plugin")
                })
                .unwrap();
            let text = &map.data.as_ref().unwrap()["config.toml"];
            text.contains("[class.dummy-npu]\nenabled = true\n")
        };
        assert!(!offers(&render(&overlay)));
        assert!(offers(&with_component(&overlay, "dummy-npu")));
    }
}
