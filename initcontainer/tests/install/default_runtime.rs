//! An installation with `--set-default` keeps the runtime that was the default.

use std::fs;

use serde_json::Value;

use crate::site::{Site, complaint, said};
use crate::tree;

const CRUN: &str = "{\n    \"default-runtime\": \"crun\",\n    \"runtimes\": {\n        \
    \"crun\": { \"path\": \"/usr/bin/crun\" }\n    }\n}\n";

/// Makes a host with Docker, whose default runtime is crun.
fn site() -> Site {
    let site = Site::with_containerd();
    fs::remove_file(site.path("usr/bin/containerd")).unwrap();
    site.add_program("dockerd");
    site.write("etc/docker/daemon.json", CRUN);
    site
}

const INSTALL: [&str; 2] = ["install", "--set-default"];
const NOTE: &str = "docker: the default runtime boathook replaces crun; it calls /usr/bin/crun";
const LINE: &str = "path = \"/usr/bin/crun\"";

#[test]
fn it_is_called_by_ours_and_comes_back() {
    let site = site();
    let before = tree::snapshot(site.root());
    let text = said(&site.run(&[&INSTALL[..], &["--dry-run", "-v"]].concat()));
    assert!(text.contains(NOTE), "{text}");
    assert!(text.contains(&format!("+{LINE}")), "{text}");
    assert_eq!(tree::snapshot(site.root()), before);

    let text = said(&site.run(&INSTALL));
    assert!(text.contains(NOTE), "{text}");
    assert!(site.read("etc/boathook/config.toml").contains(LINE));
    let daemon = site.read("etc/docker/daemon.json");
    assert!(
        daemon.contains("\"default-runtime\": \"boathook\""),
        "{daemon}"
    );
    let text = said(&site.run(&INSTALL));
    assert!(text.contains("nothing to do"), "{text}");
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

/// An earlier installation without `--set-default` has written the configuration file.
#[test]
fn a_configuration_of_an_installation_is_extended() {
    let site = site();
    let before = tree::snapshot(site.root());
    said(&site.run(&["install"]));
    assert!(!site.read("etc/boathook/config.toml").contains(LINE));
    said(&site.run(&INSTALL));
    assert!(site.read("etc/boathook/config.toml").contains(LINE));
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_configuration_of_the_administrator_must_name_it() {
    let given = ["install", "--set-default", "--config"];
    for (own, runtime, refusal) in [
        (true, "", Some("of /etc/boathook/config.toml")),
        (true, "[runtime]\npath = \"/usr/bin/crun\"\n", None),
        (true, "[runtime]\npath = \"/usr/bin/runc\"\n", None),
        (false, "", Some("of the given configuration")),
        (false, "[runtime]\npath = \"/usr/bin/crun\"\n", None),
    ] {
        let site = site();
        let text = format!("log_level = \"info\"\n{runtime}");
        let file = site.release().join("config.toml");
        fs::write(&file, &text).unwrap();
        let output = if own {
            site.write("etc/boathook/config.toml", &text);
            site.run(&INSTALL)
        } else {
            site.run(&[&given[..], &[file.to_str().unwrap()]].concat())
        };
        let is_set = || site.read("etc/docker/daemon.json").contains("boathook");
        match refusal {
            Some(words) => {
                let text = complaint(&output);
                assert!(
                    text.contains(&format!("write `{LINE}` in [runtime] {words}")),
                    "{text}"
                );
                assert!(!is_set(), "{text}");
            }
            None => {
                said(&output);
                assert!(is_set());
                assert_eq!(site.read("etc/boathook/config.toml"), text);
            }
        }
    }
}

#[test]
fn one_that_cannot_be_called_is_not_replaced() {
    let site = site();
    let runtime =
        "{\"default-runtime\": \"runsc\", \"runtimes\": {\"runsc\": {\"path\": \"/b/runsc\"}}}";
    site.write("etc/docker/daemon.json", runtime);
    let before = tree::snapshot(site.root());
    for more in [&["--dry-run"][..], &[]] {
        let text = complaint(&site.run(&[&INSTALL[..], more].concat()));
        assert!(
            text.contains("docker: the default runtime is runsc (/b/runsc)"),
            "{text}"
        );
        assert_eq!(tree::snapshot(site.root()), before);
    }
    // Without `--set-default` the runtime is installed in addition to the default one.
    said(&site.run(&["install"]));
    let daemon: Value = serde_json::from_str(&site.read("etc/docker/daemon.json")).unwrap();
    assert_eq!(daemon["default-runtime"], "runsc");
}

#[test]
fn an_installation_without_the_option_keeps_the_default() {
    let site = site();
    site.write("etc/docker/daemon.json", "{}\n");
    let docker_default = || {
        let daemon: Value = serde_json::from_str(&site.read("etc/docker/daemon.json")).unwrap();
        daemon["default-runtime"].clone()
    };
    for (options, default, note) in [
        (&["--set-default"][..], "boathook", None),
        (
            &[],
            "boathook",
            Some("docker: keeping `--set-default` of an earlier installation"),
        ),
        (&["--no-set-default"], "", None),
        (&[], "", None),
        // The last of the two options counts, as for other programs.
        (&["--no-set-default", "--set-default"], "boathook", None),
        // A release of a cluster has all options in its manifests.
        (&["--release", "kube-system/boathook"], "", None),
    ] {
        let text = said(&site.run(&[&["install", "--engine", "docker"], options].concat()));
        assert_eq!(
            docker_default().as_str().unwrap_or_default(),
            default,
            "{options:?}"
        );
        assert_eq!(
            text.contains("keeping"),
            note.is_some(),
            "{options:?}: {text}"
        );
        assert!(
            text.contains(note.unwrap_or_default()),
            "{options:?}: {text}"
        );
    }
}

#[test]
fn one_program_is_called_for_all_engines() {
    let site = site();
    site.add_program("podman");
    site.add_program("runc");
    let before = tree::snapshot(site.root());
    let text = complaint(&site.run(&INSTALL));
    let words = "(docker /usr/bin/crun, podman runc), and boathook-runtime calls one program";
    assert!(text.contains(words), "{text}");
    assert_eq!(tree::snapshot(site.root()), before);
    said(&site.run(&["install", "--set-default", "--engine", "docker"]));
}

#[test]
fn a_wrong_list_of_engines_changes_nothing() {
    let site = site();
    let before = tree::snapshot(site.root());
    for command in ["install", "uninstall"] {
        for (engines, words) in [
            ("", "the name of an engine is missing"),
            ("docker,", "the name of an engine is missing"),
            ("docker,docker", "docker is named twice"),
            ("dokcer", "unknown engine \"dokcer\""),
        ] {
            let output = site.run(&[command, "--engine", engines]);
            assert_eq!(output.status.code(), Some(2), "{command} {engines}");
            let text = complaint(&output);
            assert!(
                text.contains(words) && text.contains("containerd, crio"),
                "{text}"
            );
            assert_eq!(tree::snapshot(site.root()), before);
        }
    }
}
