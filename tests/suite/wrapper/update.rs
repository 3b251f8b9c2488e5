//! `update` with a list of device rules: the container's own are added to it.

use std::fs;
use std::path::Path;

use harness::captured::Captured;
use serde_json::{Value, json};

use super::{Lab, bundle, config, config_of};
use crate::said::assert_says;

const LIST: &str = r#"{ "cpu": {"shares": 1e2}, "devices": [ {"allow":false,"access":"rwm"} ] }"#;

/// A runtime that answers `state`, and prints the resources that it is given.
fn configure(lab: &Lab, bundle: &Path) {
    let script = format!(
        "#!/bin/sh\n\
         for word; do test \"$word\" = state && exec printf '{{\"bundle\":\"{}\"}}'; done\n\
         for word; do case $word in\n\
         --resources=*) exec cat \"${{word#--resources=}}\";;\n\
         /proc/self/fd/*) exec cat \"$word\";;\n\
         esac; done\n",
        bundle.display()
    );
    lab.configure_script(&script);
}

/// A bundle as the wrapper leaves it at `create`, with a rule for one device.
fn created(lab: &Lab) -> tempfile::TempDir {
    let bundle = bundle(&config("npu-3").to_string());
    lab.create(bundle.path()).success().unwrap();
    let mut config: Value = serde_json::from_str(&config_of(bundle.path())).unwrap();
    let rules = config["linux"]["resources"]["devices"].as_array_mut();
    rules.unwrap().push(rule());
    fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
    bundle
}

fn rule() -> Value {
    json!({"allow": true, "type": "c", "major": 10, "minor": 183, "access": "rwm"})
}

/// Both methods of passing the resources, and what the runtime then reads.
fn updated(lab: &Lab, resources: &str) -> [String; 2] {
    let file = lab.host.path().join("resources.json");
    fs::write(&file, resources).unwrap();
    let option = format!("--resources={}", file.display());
    let by_file = lab.run(["--root", "/r", "update", &option, "c1"]);
    let mut command = lab.command(["update", "--resources", "-", "c1"]);
    let by_stdin = Captured::run_with_input(&mut command, resources.as_bytes()).unwrap();
    [by_file, by_stdin].map(|ran| ran.success().unwrap().stdout)
}

#[test]
fn the_containers_rules_are_added() {
    let lab = Lab::new();
    let bundle = created(&lab);
    configure(&lab, bundle.path());
    let expected = LIST.replace("} ]", &format!("}},{} ]", rule()));
    let parsed = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    for text in updated(&lab, LIST) {
        assert_eq!(parsed(&text), parsed(&expected));
    }
}

#[test]
fn every_other_update_is_passed_on_byte_for_byte() {
    let lab = Lab::new();
    let created = created(&lab);
    configure(&lab, created.path());
    let complete = json!({"devices": [{"allow": false, "access": "rwm"}, rule()]}).to_string();
    for text in [
        r#"{ "cpu": {"shares": 1e2} }"#,
        r#"{"devices": []}"#,
        r#"{"devices": null}"#,
        "not JSON",
        "",
        &complete,
    ] {
        assert_eq!(updated(&lab, text), [text, text]);
    }
    // A container without the hook has no rules of the hook's.
    let mut plain = config("npu-3");
    plain["linux"]["resources"]["devices"] = json!([rule()]);
    let plain = bundle(&plain.to_string());
    configure(&lab, plain.path());
    assert_eq!(updated(&lab, LIST), [LIST, LIST]);
}

/// The device of the rule was unplugged, and another one may have its number.
#[test]
fn a_revoked_rule_is_not_added() {
    let lab = Lab::new();
    let bundle = created(&lab);
    configure(&lab, bundle.path());
    let directory = lab.host.root().join("run/boathook/attached");
    fs::create_dir_all(&directory).unwrap();
    let revoked = json!({"rule": "c 10:183 rw", "for": ["dummy-npu npu-3"]});
    let record = json!({
        "id": "c1", "pid": 1, "started": 1, "bundle": bundle.path(),
        "devices": [], "rules": [], "made": [], "withdrawn": [revoked],
    });
    fs::write(directory.join("c1"), record.to_string()).unwrap();
    assert_eq!(updated(&lab, LIST), [LIST, LIST]);
}

/// crun has recorded another directory than the bundle.
#[test]
fn the_bundle_of_the_record_counts_if_that_of_the_runtime_has_no_config_json() {
    let lab = Lab::new();
    let bundle = created(&lab);
    let other = tempfile::tempdir().unwrap();
    configure(&lab, other.path());
    let directory = lab.host.root().join("run/boathook/attached");
    fs::create_dir_all(&directory).unwrap();
    let record = json!({
        "id": "c1", "pid": 1, "started": 1, "bundle": bundle.path(),
        "devices": [], "rules": [], "made": [],
    });
    fs::write(directory.join("c1"), record.to_string()).unwrap();
    let expected = LIST.replace("} ]", &format!("}},{} ]", rule()));
    let parsed = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    for text in updated(&lab, LIST) {
        assert_eq!(parsed(&text), parsed(&expected));
    }
}

#[test]
fn an_update_that_would_take_devices_away_is_refused() {
    let lab = Lab::new();
    let bundle = created(&lab);
    configure(&lab, bundle.path());
    fs::write(bundle.path().join("config.json"), [0xff]).unwrap();
    let mut command = lab.command(["update", "--resources", "-", "c1"]);
    let ran = Captured::run_with_input(&mut command, LIST.as_bytes()).unwrap();
    assert!(!ran.status.success());
    assert_eq!(ran.stdout, "");
    assert_says(&ran.stderr, &["container c1: ", "config.json"]);
}
