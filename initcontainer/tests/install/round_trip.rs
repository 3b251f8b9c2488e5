//! A removal restores the host to the byte.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use initcontainer::layout::format_default_config;
use runtime_config::Engine;

use crate::site::{Site, complaint, fixtures, said};
use crate::tree;

const CONFIG: &str = "etc/boathook/config.toml";

#[test]
fn every_fixture_comes_back_to_the_byte() {
    let mut seen = 0;
    for engine in fs::read_dir(fixtures()).unwrap().map(|e| e.unwrap()) {
        for case in fs::read_dir(engine.path()).unwrap() {
            let case = case.unwrap().path();
            if case.join("error").exists() {
                continue;
            }
            let engine: Engine = engine.file_name().to_str().unwrap().parse().unwrap();
            let site = Site::new(&case.join("before"));
            let before = tree::snapshot(site.root());
            site.install("0.1.0", &[engine]);
            assert!(site.path("opt/boathook/current/bin/boathook").exists());
            site.uninstall();
            assert_eq!(tree::snapshot(site.root()), before, "{}", case.display());
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} fixtures found");
}

#[test]
fn what_others_put_beside_it_stays_and_is_listed() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    site.make_dirs(&["opt/theirs"]);
    let files = [
        "etc/boathook/theirs.toml",
        "etc/boathook/classes.d/mine.toml",
    ];
    for file in files {
        site.write(file, "");
    }
    let undone = said(&site.run(&["uninstall"]));
    let kept = "kept /etc/boathook/classes.d: it holds mine.toml\n";
    assert!(undone.contains(kept), "{undone}");
    for left in files.into_iter().chain(["opt/theirs"]) {
        assert!(site.path(left).exists(), "{left}");
    }
    assert!(!site.path("opt/boathook").exists());
}

#[test]
fn directories_that_a_kubelet_made_go_if_they_are_empty() {
    let site = Site::with_containerd();
    site.make_dirs(&["opt", "etc"]);
    let before = tree::snapshot(site.root());
    // A kubelet makes these directories for volumes.
    site.make_dirs(&["opt/boathook", "etc/boathook"]);
    site.install("0.1.0", &[Engine::Containerd]);
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

/// While a claim is prepared, its pod needs the hook, and boathook-dra is needed to end the claim.
#[test]
fn what_the_dra_driver_keeps_goes_when_no_claim_is_prepared() {
    let site = Site::with_containerd();
    site.make_dirs(&["var/lib/kubelet/plugins", "run/cdi"]);
    let before = tree::snapshot(site.root());
    site.install("0.1.0", &[Engine::Containerd]);
    let record = "var/lib/kubelet/plugins/boathook.dev/claims/u-1.json";
    site.write(record, "{}");
    site.write("var/lib/kubelet/plugins/boathook.dev/serialize.lock", "");
    site.write("run/cdi/boathook.dev-claim-u-1.json", "{}");
    let refused = complaint(&site.run(&["uninstall"]));
    assert!(refused.contains("the claims u-1 are prepared"), "{refused}");
    assert!(site.path("opt/boathook/current").exists());
    fs::remove_file(site.path(record)).unwrap();
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn specifications_of_cdi_go_and_those_of_others_stay() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[]);
    let ours = r#"{"cdiVersion": "0.5.0", "kind": "dummy.com/npu", "devices": []}"#;
    let gone = ["run/cdi", "etc/cdi"].map(|dir| format!("{dir}/boathook-dummy.com-npu.json"));
    let kept = ["run/cdi/vendor.json", "etc/cdi/boathook-other.json"];
    for file in [&gone[0], &gone[1], kept[0]] {
        site.write(file, ours);
    }
    site.write(kept[1], "{}");
    let status = String::from_utf8(site.run(&["status"]).stdout).unwrap();
    let shown = "CDI specifications:\n  /etc/cdi/boathook-dummy.com-npu.json\n  \
                 /run/cdi/boathook-dummy.com-npu.json\n";
    assert!(status.contains(shown), "{status}");
    site.uninstall();
    assert!(!gone.iter().any(|file| site.path(file).exists()));
    assert!(kept.iter().all(|file| site.path(file).exists()));
}

#[test]
fn absolute_links_of_the_host_lead_to_the_host() {
    let site = Site::with_containerd();
    site.make_dirs(&["var/opt"]);
    symlink("/var/opt", site.path("opt")).unwrap();
    let before = tree::snapshot(site.root());
    site.install("0.1.0", &[Engine::Containerd]);
    assert!(site.path("var/opt/boathook/0.1.0/bin/boathook").exists());
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_configuration_that_was_edited_is_kept() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[]);
    site.write(CONFIG, "classes = []\n");
    site.install("0.2.0", &[]);
    assert_eq!(site.read(CONFIG), "classes = []\n");
    site.uninstall();
    assert_eq!(site.read(CONFIG), "classes = []\n");
}

/// Installs with the given configuration.
fn install_with(site: &Site, config: &str) -> Output {
    let file = site.release().join("config.toml");
    fs::write(&file, config).unwrap();
    let file = file.to_str().unwrap();
    site.run(&["install", "--engine", "none", "--config", file])
}

#[test]
fn a_given_configuration_is_kept_up_to_date() {
    let site = Site::with_containerd();
    // The default configuration of an earlier installation is replaced too.
    site.install("0.1.0", &[]);
    assert_eq!(
        site.read(CONFIG),
        format_default_config(site.host.directories())
    );
    for text in ["[class.a]\nreplicas = 2\n", "[class.a]\nreplicas = 3\n"] {
        said(&install_with(&site, text));
        assert_eq!(site.read(CONFIG), text);
        assert_eq!(site.read("opt/boathook/state/config.toml"), text);
        assert!(!said(&install_with(&site, text)).contains("config.toml"));
    }
    site.uninstall();
    assert!(!site.path(CONFIG).exists());
}

#[test]
fn a_configuration_of_the_administrators_stays_beside_a_given_one() {
    let site = Site::with_containerd();
    let own = "[class.a]\nreplicas = 9\n";
    site.write(CONFIG, own);
    let said = said(&install_with(&site, "[class.a]\nreplicas = 2\n"));
    assert!(said.contains("remove the file to use it"), "{said}");
    assert_eq!(site.read(CONFIG), own);
    site.uninstall();
    assert_eq!(site.read(CONFIG), own);
}

/// An installation is killed after it has written the manifest and before it writes the
/// configuration.
#[test]
fn a_given_configuration_is_written_after_a_run_that_was_killed() {
    let site = Site::with_containerd();
    let text = |replicas: u32| format!("[class.a]\nreplicas = {replicas}\n");
    said(&install_with(&site, &text(2)));
    said(&install_with(&site, &text(3)));
    site.write(CONFIG, &text(2));
    said(&install_with(&site, &text(4)));
    assert_eq!(site.read(CONFIG), text(4));
}

#[test]
fn a_given_configuration_that_the_hook_would_refuse_is_not_installed() {
    let site = Site::with_containerd();
    let said = complaint(&install_with(&site, "replicas = 2\n"));
    assert!(said.contains("config.toml:1"), "{said}");
    assert!(!site.path("opt/boathook").exists());
}
