//! The wrapper's changes of config.json.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use harness::{binaries, scratch};
use serde_json::{Value, json};

use super::{Lab, bundle, config, config_of, names};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_hook_is_the_one_beside_the_wrapper() {
    let lab = Lab::new();
    let bundle = bundle(&config("npu-3").to_string());
    lab.create(bundle.path()).success().unwrap();
    let hook = json!({
        "path": binaries::program("boathook-hook").unwrap(),
        "args": ["boathook-hook", "--config", lab.host.config_file(), "prestart"],
        "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "timeout": runtime_config::HOOK_TIMEOUT_SECONDS,
    });
    let mut expected = config("npu-3");
    expected["hooks"] = json!({"prestart": [hook]});
    assert_eq!(parsed(&config_of(bundle.path())), expected);
}

#[test]
fn the_hook_may_be_configured() {
    let lab = Lab::new();
    let hook = lab.host.path().join("a-hook");
    fs::write(&hook, "").unwrap();
    let more = format!("[runtime]\npath = {:?}\nhook = {hook:?}\n", lab.runtime);
    lab.host.write_config(&more).unwrap();
    let bundle = bundle(&config("npu-3").to_string());
    lab.create(bundle.path()).success().unwrap();
    let written = parsed(&config_of(bundle.path()));
    assert_eq!(written["hooks"]["prestart"][0]["path"], json!(hook));
}

/// However the bundle is named, and whatever else is in it.
#[test]
fn nothing_else_is_changed() {
    let lab = Lab::new();
    let text = concat!(
        "{\"z\": 1e400, \"ociVersion\" : \"1.0.2\",\n\t\"root\": {\"path\": \"rootfs\", \"new\": -0.0},\n",
        "  \"process\": {\"env\": [\"DUMMY_VISIBLE_DEVICES=npu-3\"], \"rlimits\": [18446744073709551616]},\r\n",
        "  \"hooks\": {\"poststop\": [ {\"path\": \"/theirs\"} ], \"prestart\": []}, \"a\": \"\\u0041\"}\n"
    );
    let bundle = bundle(text);
    let link = bundle.path().with_extension("link");
    symlink(bundle.path(), &link).unwrap();
    lab.create(&link).success().unwrap();
    fs::remove_file(&link).unwrap();
    let written = config_of(bundle.path());
    let (before, rest) = written.split_once("\"prestart\": [").unwrap();
    let (entry, after) = rest.split_once("]}, \"a\"").unwrap();
    assert_eq!(format!("{before}\"prestart\": []}}, \"a\"{after}"), text);
    assert_eq!(
        parsed(entry)["timeout"],
        runtime_config::HOOK_TIMEOUT_SECONDS
    );
}

#[test]
fn it_is_written_once() {
    let lab = Lab::new();
    let bundle = bundle(&config("npu-3").to_string());
    lab.create(bundle.path()).success().unwrap();
    let once = config_of(bundle.path());
    lab.create(bundle.path()).success().unwrap();
    assert_eq!(config_of(bundle.path()), once);
}

/// A file of its own takes the old one's place: mode and owner are the same,
/// a reader of the old one is not disturbed, and nothing is left beside it.
#[test]
fn the_file_is_replaced_as_a_whole() {
    let lab = Lab::new();
    let bundle = bundle(&config("npu-3").to_string());
    let file = bundle.path().join("config.json");
    for mode in [0o600, 0o644, 0o400] {
        fs::write(bundle.path().join("new"), config("npu-3").to_string()).unwrap();
        fs::rename(bundle.path().join("new"), &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let before = fs::metadata(&file).unwrap();
        lab.create(bundle.path()).success().unwrap();
        let after = fs::metadata(&file).unwrap();
        assert_eq!(after.mode(), before.mode());
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        assert_ne!(after.ino(), before.ino());
        assert_eq!(names(bundle.path()), ["config.json"]);
    }
}

/// A config.json that is a link stays a link; its target is replaced.
#[test]
fn a_linked_file_stays_linked() {
    let lab = Lab::new();
    let real = bundle(&config("npu-3").to_string());
    let linked = scratch::directory("bundle").unwrap();
    let link = linked.path().join("config.json");
    symlink(real.path().join("config.json"), &link).unwrap();
    lab.create(linked.path()).success().unwrap();
    assert!(link.is_symlink());
    assert!(parsed(&config_of(real.path()))["hooks"].is_object());
    assert_eq!(names(linked.path()), ["config.json"]);
}

/// crun lets the file have another name.
#[test]
fn another_file_may_be_the_configuration() {
    let lab = Lab::new();
    let bundle = bundle("not the one");
    let other = bundle.path().join("other.json");
    fs::write(&other, config("npu-3").to_string()).unwrap();
    let directory = bundle.path().to_str().unwrap();
    lab.run(["run", "-f", "other.json", "-b", directory, "c1"])
        .success()
        .unwrap();
    assert_eq!(config_of(bundle.path()), "not the one");
    assert!(parsed(&fs::read_to_string(&other).unwrap())["hooks"].is_object());
}

/// The hook writes the record by which the device is given when it comes.
#[test]
fn a_container_that_waits_has_the_hook() {
    let lab = Lab::new();
    for (class, value, has_hook) in [
        ("follow = true\n", "npu-99?", true),
        ("", "void", false),
        ("follow = true\n", "void", false),
    ] {
        let class = super::CLASS.replace("version = 1\n", &format!("version = 1\n{class}"));
        lab.host.add_class("dummy-npu", &class).unwrap();
        let bundle = bundle(&config(value).to_string());
        lab.create(bundle.path()).success().unwrap();
        let written = parsed(&config_of(bundle.path()));
        assert_eq!(written.get("hooks").is_some(), has_hook, "{value}");
    }
}
