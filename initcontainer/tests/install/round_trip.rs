//! Uninstalling leaves the host as it was, to the byte.

use std::fs;
use std::os::unix::fs::symlink;

use runtime_config::Engine;

use crate::site::{Site, fixtures};
use crate::tree;

#[test]
fn every_fixture_comes_back_to_the_byte() {
    let mut seen = 0;
    for engine in fs::read_dir(fixtures()).unwrap().map(|e| e.unwrap()) {
        for case in fs::read_dir(engine.path())
            .unwrap()
            .map(|e| e.unwrap().path())
        {
            if case.join("error").exists() {
                continue;
            }
            let engine: Engine = engine.file_name().to_str().unwrap().parse().unwrap();
            let site = Site::new(&case.join("before"));
            let before = tree::snapshot(site.root());
            site.install("0.1.0", &[engine]);
            assert!(
                site.root()
                    .join("opt/boathook/current/bin/boathook")
                    .exists()
            );
            site.uninstall();
            assert_eq!(tree::snapshot(site.root()), before, "{}", case.display());
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} fixtures found");
}

#[test]
fn what_others_put_beside_it_stays() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::create_dir(site.root().join("opt/theirs")).unwrap();
    fs::write(site.root().join("etc/boathook/theirs.toml"), "").unwrap();
    site.uninstall();
    assert!(site.root().join("opt/theirs").exists());
    assert!(site.root().join("etc/boathook/theirs.toml").exists());
    assert!(!site.root().join("opt/boathook").exists());
}

#[test]
fn a_directory_that_was_there_stays() {
    let site = Site::with_containerd();
    // As a kubelet makes it for a hostPath.
    fs::create_dir_all(site.root().join("opt/boathook")).unwrap();
    let before = tree::snapshot(site.root());
    site.install("0.1.0", &[Engine::Containerd]);
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn absolute_links_of_the_host_lead_to_the_host() {
    let site = Site::with_containerd();
    fs::create_dir_all(site.root().join("var/opt")).unwrap();
    symlink("/var/opt", site.root().join("opt")).unwrap();
    let before = tree::snapshot(site.root());
    site.install("0.1.0", &[Engine::Containerd]);
    assert!(
        site.root()
            .join("var/opt/boathook/0.1.0/bin/boathook")
            .exists()
    );
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_configuration_that_was_edited_is_kept() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[]);
    let config = site.root().join("etc/boathook/config.toml");
    fs::write(&config, "classes = []\n").unwrap();
    site.install("0.2.0", &[]);
    assert_eq!(fs::read_to_string(&config).unwrap(), "classes = []\n");
    site.uninstall();
    assert_eq!(fs::read_to_string(&config).unwrap(), "classes = []\n");
}
