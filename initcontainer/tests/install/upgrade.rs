//! Tests of a second version that is installed beside the first one.

use std::fs;
use std::path::Path;

use initcontainer::compatibility::ReplacedToolkits;
use initcontainer::{install, step, uninstall};
use runtime_config::{Engine, InstallOptions};
use serde_json::Value;

use crate::site::{Site, complaint, fixture, options, said};
use crate::tree;

/// The bundle of a container on the host.
const BUNDLE: &str = "run/containerd/io.containerd.runtime.v2.task/k8s.io/abc123";

const OWN_CLASS: &str = "version = 1\nresource = \"own.com/card\"\n\
    request = { env = \"OWN_VISIBLE_DEVICES\" }\ndiscover = [{ count = 1 }]\n\
    device = { id = \"card\" }\n";

fn versions(site: &Site) -> Vec<String> {
    install::list_installed_versions(&site.host).unwrap()
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

/// An upgrade has no options of its own: those of the installation are recorded.
#[test]
fn an_upgrade_keeps_the_engines_and_the_options_of_the_installation() {
    let site = Site::new(&fixture("docker/empty-object"));
    for program in ["dockerd", "containerd"] {
        site.add_program(program);
    }
    site.add_toolkit();
    site.write("own/own.toml", OWN_CLASS);
    let own = site.path("own").display().to_string();
    let options = ["--engine=docker", "--set-default", "--as=vendor"];
    said(&site.run(&[&["install", "--own-classes", &own][..], &options].concat()));
    let configuration = site.read("etc/docker/daemon.json");

    site.write_release_version("0.9.2");
    site.set_programs(b"two");
    let planned = said(&site.run(&["upgrade", "--dry-run"]));
    assert!(
        planned.contains("link /opt/boathook/current -> 0.9.2"),
        "{planned}"
    );
    assert!(!planned.contains("daemon.json"), "{planned}");
    said(&site.run(&["upgrade"]));
    let current = fs::read_link(site.path("opt/boathook/current")).unwrap();
    assert_eq!(current, Path::new("0.9.2"));
    let hook = fs::read(site.path("opt/boathook/current/bin/boathook-hook")).unwrap();
    assert!(hook.ends_with(b"two"));
    assert_eq!(site.read("etc/docker/daemon.json"), configuration);
    assert!(
        site.path("opt/boathook/current/classes.d/own.toml")
            .is_file()
    );
    // It was on the host and not chosen.
    assert!(!site.path("etc/containerd/config.toml").exists());
}

#[test]
fn an_upgrade_of_a_cluster_keeps_its_configuration() {
    let site = Site::with_containerd();
    site.write("given.toml", "[class.dummy-npu]\nreplicas = 2\n");
    let given = site.path("given.toml").display().to_string();
    said(&site.run(&["install", "--config", &given]));
    fs::remove_file(&given).unwrap();
    site.write_release_version("0.9.2");
    said(&site.run(&["upgrade"]));
    for file in ["etc/boathook/config.toml", "opt/boathook/state/config.toml"] {
        assert!(site.read(file).contains("replicas = 2"), "{file}");
    }
}

/// A security fix arrives also where somebody has disabled the CRI of one engine.
#[test]
fn an_upgrade_leaves_an_engine_with_a_disabled_cri_as_it_is() {
    let site = Site::with_containerd();
    said(&site.run(&["install", "--engine", "containerd"]));
    let config = site.read("etc/containerd/config.toml");
    let config = format!("disabled_plugins = [\"cri\"]\n{config}");
    site.write("etc/containerd/config.toml", &config);
    site.write_release_version("0.9.2");
    let text = said(&site.run(&["upgrade"]));
    assert!(text.contains("containerd: left as it is: "), "{text}");
    let current = fs::read_link(site.path("opt/boathook/current")).unwrap();
    assert_eq!(current, Path::new("0.9.2"));
    assert_eq!(site.read("etc/containerd/config.toml"), config);
    said(&site.run(&["uninstall"]));
    let text = site.read("etc/containerd/config.toml");
    assert!(!text.contains("boathook"), "{text}");
}

#[test]
fn an_upgrade_without_an_installation_does_nothing() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let text = said(&site.run(&["upgrade"]));
    assert!(text.contains("boathook is not installed"), "{text}");
    assert_eq!(tree::snapshot(site.root()), before);
}

/// The scripts of a package remove no installation of an archive or of a cluster.
#[test]
fn an_installation_from_elsewhere_is_not_removed() {
    let site = Site::with_containerd();
    said(&site.run(&["install"]));
    let before = tree::snapshot(site.root());
    for option in [&[][..], &["--dry-run"]] {
        let arguments = ["uninstall", "--installed-from", "/usr/lib/boathook"];
        let text = said(&site.run(&[&arguments[..], option].concat()));
        let note = "the installed version is from an image and stays";
        assert!(text.contains(note), "{text}");
        assert_eq!(tree::snapshot(site.root()), before);
    }
}

/// The version of a release is the name of its directory.
#[test]
fn a_version_that_cannot_be_a_directory_is_refused() {
    for version in ["", "../0.1.0", "current", "0.1.0/x", "0 1"] {
        let site = Site::with_containerd();
        site.write_release_version(version);
        let message = complaint(&site.run(&["install"]));
        assert!(
            message.contains("it has no version"),
            "{version}: {message}"
        );
    }
}

/// The first versions configured engines to call `boathook` as the hook.
#[test]
fn a_hook_of_an_earlier_name_is_replaced() {
    for (engine, host, file) in [
        (
            Engine::Podman,
            "podman/5.0-append",
            "etc/containers/oci/hooks.d/99-boathook.json",
        ),
        (
            Engine::Crio,
            "crio/1.36-package",
            "etc/crio/hooks.d/99-boathook.json",
        ),
    ] {
        let site = Site::new(&fixture(host));
        let before = tree::snapshot(site.root());
        let earlier = InstallOptions {
            hook_path: site.host.boathook_path(),
            ..options(&site.host)
        };
        let payload = site.payload("0.1.0");
        let plan = install::plan(
            &site.host,
            &payload,
            &[(engine, earlier)],
            &ReplacedToolkits::default(),
            false,
        )
        .unwrap();
        step::execute_steps(&site.host, &plan.steps, |_| Ok(())).unwrap();
        let hook = || {
            let entry: Value = serde_json::from_str(&site.read(file)).unwrap();
            Path::new(entry["hook"]["path"].as_str().unwrap()).to_owned()
        };
        assert_eq!(hook(), site.host.boathook_path());
        site.install("0.2.0", &[engine]);
        let (commands, installed) = (
            site.host.boathook_path(),
            site.host.directories().hook_path(),
        );
        assert_eq!(hook(), installed);
        let in_host = |path: &Path| site.path(path.strip_prefix("/").unwrap());
        assert!(in_host(&installed).is_file());
        // The engine may have read the file of the first version.
        assert!(in_host(&commands).is_file());
        site.uninstall();
        assert_eq!(tree::snapshot(site.root()), before, "{engine}");
    }
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
