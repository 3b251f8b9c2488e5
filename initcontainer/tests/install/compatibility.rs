//! Installations that are also offered under the names of a toolkit (`--as`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::site::{Site, complaint, docker_daemon, said};
use crate::tree;

const INSTALL: [&str; 3] = ["install", "--as", "vendor"];
const HOOK_LINK: &str = "usr/local/bin/vendor-hook";
const RUNTIME_LINK: &str = "usr/local/bin/vendor-runtime";
const HOOK: &str = "/opt/boathook/current/bin/boathook-hook";
const RUNTIME: &str = "/opt/boathook/current/bin/boathook-runtime";

/// Makes a host with Docker, and a release with the names of the toolkit `vendor`.
fn site() -> Site {
    let site = Site::with_containerd();
    site.add_program("dockerd");
    site.write("etc/docker/daemon.json", "{}\n");
    site.add_toolkit();
    // A kubelet's containerd.
    site.write("etc/crictl.yaml", "");
    site
}

fn runtimes(site: &Site) -> Value {
    let daemon: Value = serde_json::from_str(&site.read("etc/docker/daemon.json")).unwrap();
    daemon["runtimes"].clone()
}

#[test]
fn a_toolkits_names_lead_to_ours_until_the_removal() {
    let site = site();
    let before = tree::snapshot(site.root());
    let planned = said(&site.run(&[&INSTALL[..], &["--dry-run"]].concat()));
    for line in [
        &format!("link /{HOOK_LINK} -> {HOOK}"),
        &format!("link /{RUNTIME_LINK} -> {RUNTIME}"),
        &format!("+        \"vendor\": {{ \"path\": \"{RUNTIME}\" }}"),
        "+[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.vendor]",
    ] {
        assert!(planned.contains(line), "{line}: {planned}");
    }
    assert_eq!(tree::snapshot(site.root()), before);

    said(&site.run(&INSTALL));
    let target = |link: &str| fs::read_link(site.path(link)).unwrap();
    assert_eq!(target(HOOK_LINK), Path::new(HOOK));
    assert_eq!(target(RUNTIME_LINK), Path::new(RUNTIME));
    let entry = json!({"path": RUNTIME});
    assert_eq!(runtimes(&site), json!({"boathook": entry, "vendor": entry}));
    let again = said(&site.run(&INSTALL));
    assert!(again.contains("nothing to do"), "{again}");
    let status = said(&site.run(&["status"]));
    assert!(status.contains("under the names of vendor"), "{status}");

    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn only_docker_gets_links() {
    let site = site();
    said(&site.run(&[&INSTALL[..], &["--engine", "containerd"]].concat()));
    let text = site.read("etc/containerd/config.toml");
    assert!(text.contains("runtimes.vendor]"), "{text}");
    assert!(!site.path(HOOK_LINK).is_symlink());
}

#[test]
fn an_installation_without_the_option_keeps_the_names() {
    let site = site();
    said(&site.run(&INSTALL));
    let before = tree::snapshot(site.root());
    let text = said(&site.run(&["install"]));
    for engine in ["docker", "containerd"] {
        let note = format!(
            "{engine}: keeping `--as vendor` of an earlier installation; to remove it, use `--no-as`"
        );
        assert!(text.contains(&note), "{text}");
    }
    assert!(text.contains("nothing to do"), "{text}");
    assert_eq!(tree::snapshot(site.root()), before);
    // An unknown toolkit changes nothing.
    let text = complaint(&site.run(&["install", "--as", "vender"]));
    assert!(text.contains("there are vendor"), "{text}");
    assert_eq!(tree::snapshot(site.root()), before);
    // A release without the class that has the names cannot offer them.
    let text = said(&site.run(&["install", "--classes", "none"]));
    assert!(
        text.contains("the names of vendor are taken away"),
        "{text}"
    );
    assert_eq!(runtimes(&site), json!({"boathook": {"path": RUNTIME}}));
    said(&site.run(&INSTALL));
    // A release of a cluster has all options in its manifests.
    let text = said(&site.run(&["install", "--release", "kube-system/boathook"]));
    assert!(
        text.contains("the names of vendor are taken away"),
        "{text}"
    );
    assert_eq!(runtimes(&site), json!({"boathook": {"path": RUNTIME}}));
}

#[test]
fn the_opposite_of_the_option_takes_the_names_away() {
    let site = site();
    said(&site.run(&INSTALL));
    let text = said(&site.run(&["install", "--no-as"]));
    let note = "the names of vendor are taken away; install with --as vendor to keep them";
    assert!(text.contains(note), "{text}");
    for link in [HOOK_LINK, RUNTIME_LINK] {
        assert!(!site.path(link).is_symlink(), "{link}");
    }
    assert_eq!(runtimes(&site), json!({"boathook": {"path": RUNTIME}}));
    let text = site.read("etc/containerd/config.toml");
    assert!(!text.contains("vendor"), "{text}");
    let status = said(&site.run(&["status"]));
    assert!(!status.contains("vendor"), "{status}");
}

/// An installation for another engine is no reason to take `--gpus` from Docker's users.
#[test]
fn an_installation_for_another_engine_keeps_the_names() {
    let site = site();
    said(&site.run(&[&INSTALL[..], &["--engine", "docker"]].concat()));
    let docker = runtimes(&site);
    for engine in ["podman", "containerd", "none"] {
        let text = said(&site.run(&["install", "--engine", engine]));
        assert!(!text.contains("taken away"), "{engine}: {text}");
        for link in [HOOK_LINK, RUNTIME_LINK] {
            assert!(site.path(link).is_symlink(), "{engine}: {link}");
        }
        assert_eq!(runtimes(&site), docker, "{engine}");
        let status = said(&site.run(&["status"]));
        assert!(status.contains("under the names of vendor"), "{status}");
        let text = site.read("etc/containerd/config.toml");
        assert!(!text.contains("vendor"), "{engine}: {text}");
    }
    // Each engine is upgraded with its own names.
    site.write_release_version("0.9.2");
    said(&site.run(&["upgrade"]));
    assert_eq!(runtimes(&site), docker);
    assert!(site.path(HOOK_LINK).is_symlink());
    let text = site.read("etc/containerd/config.toml");
    assert!(!text.contains("vendor"), "{text}");
    // An engine that had not the names does not get them.
    let text = said(&site.run(&["install", "--engine", "docker,containerd"]));
    assert!(!text.contains("containerd: keeping"), "{text}");
    let text = site.read("etc/containerd/config.toml");
    assert!(!text.contains("vendor"), "{text}");
    assert_eq!(runtimes(&site), docker);
    // Docker itself is installed without the names.
    let text = said(&site.run(&["install", "--engine", "docker", "--no-as"]));
    assert!(text.contains("taken away"), "{text}");
    assert!(!site.path(HOOK_LINK).is_symlink());
}

/// Docker was removed from the host, and the class with its names from the release.
#[test]
fn an_upgrade_does_not_need_the_names_of_an_engine_that_is_gone() {
    let site = site();
    site.add_program("podman");
    said(&site.run(&[&INSTALL[..], &["--engine", "docker,podman"]].concat()));
    fs::remove_file(site.path("usr/bin/dockerd")).unwrap();
    said(&site.run(&[
        "install",
        "--engine",
        "podman",
        "--no-as",
        "--classes",
        "none",
    ]));
    site.write_release_version("0.9.2");
    said(&site.run(&["upgrade"]));
}

/// Two toolkits can be offered one after the other, as the next commands say.
#[test]
fn a_further_toolkit_is_offered_beside_the_first() {
    let site = site();
    let classes = site.release().join("classes.d");
    let text = fs::read_to_string(classes.join("vendor-card.toml")).unwrap();
    let text = text.replace("vendor", "other").replace("VENDOR", "OTHER");
    fs::write(classes.join("other-card.toml"), text).unwrap();
    said(&site.run(&INSTALL));
    let text = said(&site.run(&["install", "--as", "other"]));
    assert!(text.contains("docker: keeping `--as vendor`"), "{text}");
    let entry = json!({"path": RUNTIME});
    let expected = json!({"boathook": entry, "other": entry, "vendor": entry});
    assert_eq!(runtimes(&site), expected);
    for link in [HOOK_LINK, RUNTIME_LINK, "usr/local/bin/other-hook"] {
        assert!(site.path(link).is_symlink(), "{link}");
    }
    said(&site.run(&["install", "--no-as"]));
    assert_eq!(runtimes(&site), json!({"boathook": entry}));
    // The links that were taken away are no longer expected.
    said(&site.run(&["install", "--as", "other"]));
    let status = said(&site.run(&["status"]));
    assert!(!status.contains("vendor"), "{status}");
}

/// daemon.json has no marks, so the record tells which runtimes are the installation's.
#[test]
fn a_daemon_json_that_was_edited_loses_the_names_at_the_removal() {
    let site = site();
    said(&site.run(&INSTALL));
    let own = format!("\"own\": {{ \"path\": \"{RUNTIME}\" }}, \"boathook\"");
    let text = site.read("etc/docker/daemon.json");
    let edited = text.replacen("\"boathook\"", &own, 1);
    site.write("etc/docker/daemon.json", &edited);
    said(&site.run(&["uninstall"]));
    assert_eq!(runtimes(&site), json!({"own": {"path": RUNTIME}}));
}

#[test]
fn it_is_refused_while_the_toolkit_is_there() {
    let there = "is there, which boathook-init did not make: remove it, or the package that it \
                 belongs to, or run `boathook-init install --no-as`";
    let taken = "there is a runtime named \"vendor\" that this program did not install";
    let theirs = "{\n  \"runtimes\": {\"vendor\": {\"path\": \"/usr/bin/other\"}}\n}\n";
    for (file, text, refusal) in [
        ("usr/bin/vendor-hook", "#!/bin/sh\n", there),
        (HOOK_LINK, "#!/bin/sh\n", there),
        // Without a text it is a link that leads nowhere.
        ("usr/local/sbin/vendor-runtime", "", there),
        ("etc/docker/daemon.json", theirs, taken),
    ] {
        let site = site();
        if text.is_empty() {
            site.make_dirs(&["usr/local/sbin"]);
            symlink("/usr/libexec/gone", site.path(file)).unwrap();
        } else {
            site.write(file, text);
        }
        let before = tree::snapshot(site.root());
        let text = complaint(&site.run(&INSTALL));
        assert!(text.contains(&format!("/{file}")), "{text}");
        assert!(text.contains(refusal), "{text}");
        assert_eq!(tree::snapshot(site.root()), before, "{file}");
        said(&site.run(&["install"]));
    }
}

#[test]
fn status_names_programs_that_came_in_between() {
    let site = site();
    said(&site.run(&INSTALL));
    fs::remove_file(site.path(HOOK_LINK)).unwrap();
    site.write("usr/bin/vendor-runtime", "#!/bin/sh\n");
    let status = site.run(&["status"]);
    assert!(!status.status.success());
    let text = String::from_utf8_lossy(&status.stdout);
    for line in [
        "/usr/local/bin/vendor-hook does not lead to boathook: install again with --as vendor",
        "/usr/bin/vendor-runtime is there, which boathook-init did not make",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn unknown_toolkits_are_refused_with_the_known_names() {
    let text = complaint(&site().run(&["install", "--as", "vender"]));
    let refusal = "--as vender: no class of this release has this name in [compatibility]; there \
                   are vendor";
    assert!(text.contains(refusal), "{text}");
}

#[test]
fn the_next_commands_name_the_option_and_a_restart_of_docker() {
    let site = site();
    let next = |arguments: &[&str]| {
        let text = said(&site.run(&[arguments, &["--json"]].concat()));
        let document: Value = serde_json::from_str(&text).unwrap();
        document["next"].to_string()
    };
    let offer = "boathook-init install --as vendor   # cards under that toolkit's names";
    let restart = "systemctl restart docker.service   # it looks for programs for --gpus only";
    // A class that extends another one has its names as well.
    let classes = site.release().join("classes.d");
    let text = fs::read_to_string(classes.join("vendor-card.toml")).unwrap();
    let shares = text
        .replace("cards", "shares")
        .replace("com/card", "com/share");
    fs::write(
        classes.join("a-share.toml"),
        format!("enabled = false\n{shares}"),
    )
    .unwrap();
    let plain = next(&["install"]);
    assert!(plain.contains(offer), "{plain}");
    assert!(!plain.contains(restart), "{plain}");

    let answers = vec![json!({"Runtimes": {}}).to_string(); 20];
    drop(docker_daemon(&site.path("run/docker.sock"), answers));
    let with_names = next(&INSTALL);
    assert!(!with_names.contains(offer), "{with_names}");
    assert!(with_names.contains(restart), "{with_names}");
}
