//! Tests of a second version that is installed beside the first one.

use std::fs;
use std::path::Path;

use initcontainer::uninstall;
use runtime_config::Engine;

use crate::site::Site;
use crate::tree;

/// The bundle of a container on the host.
const BUNDLE: &str = "run/containerd/io.containerd.runtime.v2.task/k8s.io/abc123";

fn versions(site: &Site) -> Vec<String> {
    initcontainer::install::installed_versions(&site.host).unwrap()
}

#[test]
fn a_second_run_does_nothing() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    let plan = site.plan("0.1.0", &[Engine::Containerd]).unwrap();
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
}

#[test]
fn the_version_before_is_kept_and_the_one_before_that_collected() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    for (version, kept) in [
        ("0.1.0", vec!["0.1.0"]),
        ("0.2.0", vec!["0.1.0", "0.2.0"]),
        ("0.3.0", vec!["0.2.0", "0.3.0"]),
    ] {
        site.install(version, &[Engine::Containerd]);
        assert_eq!(versions(&site), kept);
        let current = fs::read_link(site.path("opt/boathook/current")).unwrap();
        assert_eq!(current, Path::new(version));
    }
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_version_that_a_container_names_is_kept_until_it_ends() {
    let site = Site::with_containerd();
    let hook = "{\"hooks\": {\"prestart\": [{\"path\": \"/opt/boathook/0.1.0/bin/boathook\"}]}}";
    site.write(&format!("{BUNDLE}/config.json"), hook);
    for version in ["0.1.0", "0.2.0", "0.3.0"] {
        site.install(version, &[Engine::Containerd]);
    }
    assert_eq!(versions(&site), ["0.1.0", "0.2.0", "0.3.0"]);
    fs::remove_dir_all(site.path(BUNDLE)).unwrap();
    site.install("0.3.0", &[Engine::Containerd]);
    assert_eq!(versions(&site), ["0.3.0"]);
}

#[test]
fn the_same_version_with_other_files_takes_its_place() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[]);
    site.set_programs(b"two");
    site.install("0.1.0", &[]);
    let program = fs::read(site.path("opt/boathook/current/bin/boathook")).unwrap();
    assert!(program.ends_with(b"two"));
    let names = fs::read_dir(site.path("opt/boathook")).unwrap();
    assert_eq!(names.count(), 3);
}

#[test]
fn containers_that_need_the_wrapper_hold_the_removal_up() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    let runtime = "/opt/boathook/current/bin/boathook-runtime";
    site.write(&format!("{BUNDLE}/runtime"), runtime);
    let error = uninstall::plan(&site.host, &[], false).unwrap_err();
    let said = "without it: abc123; stop them";
    assert!(error.to_string().contains(said), "{error}");
    assert!(uninstall::plan(&site.host, &[], true).is_ok());
}
