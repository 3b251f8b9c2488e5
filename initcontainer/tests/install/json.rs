//! `--json` of the commands that change the host.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Output;

use serde_json::{Value, json};

use crate::site::{Site, VERSION};
use crate::tree;

/// Parses the whole output as one JSON document.
fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn actions(document: &Value) -> Vec<(&str, &str)> {
    let steps = document["steps"].as_array().unwrap().iter();
    let texts = steps.map(|step| {
        let (action, path) = (&step["action"], &step["path"]);
        (action.as_str().unwrap(), path.as_str().unwrap())
    });
    texts.collect()
}

#[test]
fn an_installation_reports_what_it_did_and_what_is_next() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let socket = site.path("run/containerd/containerd.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    fs::create_dir_all(site.path("usr/local/bin")).unwrap();
    let with_socket = tree::snapshot(site.root());
    let _daemon = UnixListener::bind(socket).unwrap();
    // The kernel's coarse clock, which gives the times of files, ticks every few milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));

    let planned = document(&site.run(&["install", "--dry-run", "--json"]));
    assert_eq!(planned["dry_run"], true);
    let restart = "systemctl try-restart containerd.service";
    let next = json!([restart, "boathook list"]);
    assert_eq!(planned["next"], next);
    let done = document(&site.run(&["install", "--json"]));
    let expected = json!({
        "version": VERSION,
        "directory": "/opt/boathook",
        "classes": ["dummy-npu"],
        "engines": ["containerd"],
    });
    assert_eq!(done["installed"], expected);
    assert_eq!(done["dry_run"], false);
    assert_eq!(done["steps"], planned["steps"]);
    assert_eq!(done["next"], next);
    let steps = actions(&done);
    let release = format!("/opt/boathook/{VERSION}");
    for step in [
        ("copy", &*format!("/opt/boathook/.boathook-new-{VERSION}")),
        ("rename", &*release),
        ("link", "/opt/boathook/current"),
        ("write", "/etc/boathook/config.toml"),
        ("write", "/etc/containerd/config.toml"),
        ("link", "/usr/local/bin/boathook"),
    ] {
        assert!(steps.contains(&step), "no {step:?} in {steps:?}");
    }
    // The text of Boathook's own files is shown only with -v.
    for step in done["steps"].as_array().unwrap() {
        let own = step["path"].as_str().unwrap().contains("boathook/");
        let is_file = step["action"] == "write";
        assert_eq!(step["diff"].is_string(), is_file && !own, "{step}");
    }

    let again = document(&site.run(&["install", "--json"]));
    assert_eq!(again["steps"], json!([]));
    let planned = document(&site.run(&["uninstall", "--json", "--dry-run"]));
    let undone = document(&site.run(&["uninstall", "--json"]));
    assert_eq!(undone["steps"], planned["steps"]);
    assert_eq!(planned["next"], json!([restart]));
    assert_eq!(undone["next"], json!([restart]));
    assert!(undone.get("installed").is_none());
    assert!(actions(&undone).contains(&("remove", &*release)));
    fs::remove_file(site.path("run/containerd/containerd.sock")).unwrap();
    assert_eq!(tree::snapshot(site.root()), with_socket);
    assert_ne!(with_socket, before);
}

#[test]
fn notes_and_what_is_kept_are_in_the_document() {
    let site = Site::with_containerd();
    site.write("usr/local/bin/boathook-runtime", "theirs");
    let done = document(&site.run(&["install", "--json", "-v"]));
    let note = "/usr/local/bin/boathook-runtime exists and is kept";
    assert_eq!(done["notes"], json!([note]));
    let write = |step: &&Value| step["path"] == "/etc/boathook/config.toml";
    let config = done["steps"].as_array().unwrap().iter().find(write);
    assert!(config.unwrap()["diff"].is_string(), "{config:?}");

    site.write("etc/boathook/config.toml", "classes = []\n");
    let undone = document(&site.run(&["uninstall", "--json"]));
    let kept = "/etc/boathook/config.toml: it was edited";
    assert_eq!(undone["kept"], json!([kept]));
}

#[test]
fn a_failure_is_a_document_too() {
    let site = Site::with_containerd();
    site.write("etc/containerd/config.toml", "version = [\n");
    for (arguments, kind, code, word) in [
        ("install --json", "failure", 1, "containerd/config.toml"),
        ("install --json --dry-run", "failure", 1, "config.toml"),
        ("--json install --engine dokcer", "usage", 2, "dokcer"),
        ("uninstall --json --nwo", "usage", 2, "--nwo"),
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let output = site.run(&words);
        assert_eq!(output.status.code(), Some(code), "{arguments}");
        let error = &document(&output)["error"];
        assert_eq!(error["kind"], kind, "{arguments}: {error}");
        assert_eq!(error["exit_code"], code, "{arguments}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(word), "{arguments}: {message}");
        assert!(!message.contains('\n'), "{message}");
        assert!(!output.stderr.is_empty(), "{arguments}");
    }
}

/// Names for `--device` come first: they need no hook for every container.
#[test]
fn with_podman_the_next_command_writes_names_for_devices() {
    let site = Site::with_containerd();
    fs::create_dir_all(site.path("usr/bin")).unwrap();
    fs::create_dir_all(site.path("usr/local/bin")).unwrap();
    fs::write(site.path("usr/bin/podman"), "").unwrap();
    let planned = site.run(&["install", "--engine", "podman", "--dry-run", "--json"]);
    let next = document(&planned)["next"].clone();
    let next: Vec<&str> = next
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let [_, generate, run, ..] = next.as_slice() else {
        panic!("{next:?}");
    };
    assert!(generate.starts_with("boathook cdi generate "), "{generate}");
    assert!(
        generate.contains("podman run --device KIND=NAME"),
        "{generate}"
    );
    assert!(run.starts_with("podman run --rm -e "), "{run}");
}

/// The page has each key that the program prints, so that a script can rely on it.
#[test]
fn the_keys_of_the_documents_are_in_the_page() {
    let site = Site::with_containerd();
    let read = |page: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../docs")
            .join(page);
        fs::read_to_string(path).unwrap()
    };
    let page = read("json.md") + &read("engines.md");
    let install = ["install", "--json", "-v"];
    let commands = [
        &install[..],
        &["status", "--json"],
        &["uninstall", "--json"],
    ];
    for arguments in commands {
        let document = document(&site.run(arguments));
        let keys = document.as_object().unwrap().keys();
        let missing: Vec<_> = keys
            .filter(|key| !page.contains(&format!("`{key}`")))
            .collect();
        assert!(missing.is_empty(), "{arguments:?}: {missing:?}");
    }
}
