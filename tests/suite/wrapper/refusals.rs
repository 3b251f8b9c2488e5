//! Failures are reported in one line, which is also in the engine's log, and
//! nothing is changed.

use std::fs;

use harness::captured::Captured;
use serde_json::Value;

use super::{Lab, bundle, config, config_of, names};
use crate::cli;
use crate::said::assert_says;

/// Exit codes, as `boathook --help` lists them.
const CONFIG: i32 = 3;
const SPEC: i32 = 4;
const REQUEST: i32 = 5;

/// The runtime was not called, and one line names the container and has all of `words`.
#[track_caller]
fn assert_refused(ran: &Captured, code: i32, words: &[&str]) {
    cli::assert_refused(ran, code, &[words, &["the-container"]].concat());
}

#[test]
fn a_bundle_that_cant_be_used() {
    let lab = Lab::new();
    let mut large = config("npu-3").to_string();
    large.push_str(&" ".repeat(10 << 20));
    let deep = format!("{{\"linux\": {}", "[".repeat(100_000));
    let of_one = r#"{"root": {"path": "r"}, "process": {"env": ["DUMMY_VISIBLE_DEVICES=0"]}, "#;
    let with = |more: &str| format!("{of_one}{more}}}");
    let [roots, list] = [r#""root": {"path": "s"}"#, r#""hooks": []"#].map(with);
    let hooks = with(r#""hooks": {}, "hooks": {}"#);
    let cases: [(&str, &str); 9] = [
        ("", "is not an OCI configuration"),
        ("{", "is not an OCI configuration"),
        ("[1]", "is not an OCI configuration"),
        (&deep, "is not an OCI configuration"),
        ("{}", "names no root"),
        (&large, "larger than 10485760 bytes"),
        (&roots, "duplicate field `root`"),
        (&list, "`hooks` is not an object"),
        (&hooks, "duplicate field `hooks`"),
    ];
    for (text, reason) in cases {
        let bundle = bundle(text);
        let ran = lab.create(bundle.path());
        assert_refused(&ran, SPEC, &["config.json", reason]);
        assert!(config_of(bundle.path()) == text, "{reason}");
        assert_eq!(names(bundle.path()), ["config.json"]);
    }
}

#[test]
fn no_bundle_at_all() {
    let lab = Lab::new();
    let empty = harness::scratch::directory("bundle").unwrap();
    let named = lab.create(&empty.path().join("absent"));
    assert_refused(&named, SPEC, &["absent/config.json", "No such file"]);
    let mut command = lab.command(["create", "the-container"]);
    let unnamed = Captured::run(command.current_dir(empty.path())).unwrap();
    assert_refused(&unnamed, SPEC, &["config.json", "No such file"]);
    assert!(names(empty.path()).is_empty());
}

#[test]
fn a_request_that_cant_be_met() {
    let lab = Lab::new();
    for request in ["npu-64", "gpu-0", "3-1", "../../dev/sda"] {
        let text = config(request).to_string();
        let bundle = bundle(&text);
        let ran = lab.create(bundle.path());
        assert_refused(&ran, REQUEST, &[request, "DUMMY_VISIBLE_DEVICES"]);
        assert_eq!(config_of(bundle.path()), text);
    }
}

#[test]
fn a_hook_that_is_not_there() {
    let lab = Lab::new();
    let text = config("npu-3").to_string();
    for (hook, problem) in [
        ("/nowhere/boathook-hook", "does not exist"),
        ("boathook-hook", "is not an absolute path"),
    ] {
        let more = format!("[runtime]\npath = {:?}\nhook = {hook:?}\n", lab.runtime);
        lab.host.write_config(&more).unwrap();
        let bundle = bundle(&text);
        assert_refused(&lab.create(bundle.path()), CONFIG, &[hook, problem]);
        assert_eq!(config_of(bundle.path()), text);
    }
}

/// In the file and the form that the engine requests: docker, containerd and
/// podman show the message.
#[test]
fn the_engine_reads_of_it_in_its_log() {
    let lab = Lab::new();
    let bundle = bundle(&config("npu-64").to_string());
    let log = bundle.path().join("log");
    let create = |format: &[&str]| {
        let log = log.to_str().unwrap();
        let directory = bundle.path().to_str().unwrap();
        let global = [&["--log", log], format].concat();
        lab.run([&*global, &["create", "--bundle", directory, "c1"]].concat());
        let text = fs::read_to_string(log).unwrap();
        fs::remove_file(log).unwrap();
        text
    };
    let line = create(&["--log-format", "json"]);
    assert_eq!(line.lines().count(), 1, "{line}");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["level"], "error");
    let message = line["msg"].as_str().unwrap();
    assert!(message.starts_with("boathook: container c1: env DUMMY_VISIBLE_DEVICES=npu-64: "));
    let time = line["time"].as_str().unwrap();
    assert!(time.len() > 19 && time.ends_with('Z'), "{time}");

    let line = create(&[]);
    assert_says(&line, &["level=error msg=\"boathook: container c1: "]);
}
