//! Tests of what the chart says about TOML in its values: config, and the class files in
//! `classes.own`.

use std::fs;

use harness::manifests::{chart_with_file, helm, repository};
use serde_json::{Value, json};

/// The chart cannot read the image, so it has a list of the keys that its version knows.
/// `UPDATE_FIXTURES=1` writes the list.
#[test]
fn the_chart_lists_the_keys_of_its_version() {
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(repository(path)).unwrap()).unwrap()
    };
    let keys = |table: &Value| -> Vec<String> {
        table["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let config = read("device-class/config.schema.json");
    let defined = |name: &str| keys(&config["definitions"][name]);
    let wanted = json!({
        "class": defined("ClassConfig"),
        "config": keys(&config),
        "file": keys(&read("device-class/schema.json")),
        "runtime": defined("RuntimeConfig"),
        "trust": defined("Trust"),
    });
    let text = serde_json::to_string_pretty(&wanted).unwrap() + "\n";
    let list = repository("deploy/helm/keys.json");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&list, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(list).unwrap(), text);
}

fn config(text: &str) -> Value {
    json!({ "config": text })
}

fn build_own_class(text: &str) -> Value {
    json!({"classes": {"own": {"mychip": text}}})
}

/// A node with such a config.toml would keep the one of before, and one without would start no
/// plugin. A class file with a mistake is left out on each node.
#[test]
fn a_mistake_in_toml_is_refused_before_anything_is_applied() {
    for (values, reason) in [
        (config("log_level = "), "config is not TOML: toml: line 1"),
        (
            config("loglevel = 'info'"),
            "config has the key loglevel, which is unknown: correct it; the keys are class, classes, ",
        ),
        (
            config("[class.hailo]\nenabeld = true"),
            "[class.hailo] of config has the key enabeld, which is unknown",
        ),
        (
            config("class.hailo.enabeld = true"),
            "[class.hailo] of config has the key enabeld, which is unknown",
        ),
        (
            config("[trust]\ntrusted = []"),
            "[trust] of config has the key trusted, which is unknown",
        ),
        (
            config("[runtime]\nname = 'crun'"),
            "[runtime] of config has the key name, which is unknown",
        ),
        (
            config("class = 1"),
            "config has class, which is no table: write [class.NAME]",
        ),
        (
            config("[class]\nhailo = true"),
            "config has hailo in [class], which is no table: write [class.NAME]",
        ),
        (
            config("[class]\ngpu-shared = { enabled = true }"),
            "config names the class gpu-shared, which the image does not have",
        ),
        (
            config("class.gpu-shared.enabled = true"),
            "config names the class gpu-shared, which the image does not have",
        ),
        (
            json!({"kubeletDir": "/k", "config": "trust.kubelet_checkpoint = '/k/checkpoint'"}),
            "config, with what classes, replicas, dra.classes and directories add to it, is not TOML",
        ),
        (
            build_own_class("version == 1"),
            "classes.own.mychip is not TOML: toml: line 1",
        ),
        (
            build_own_class("version = 1\nresorce = 'a.com/b'"),
            "classes.own.mychip has the key resorce, which is unknown: correct it; the keys are add, ",
        ),
    ] {
        let Some(output) = helm(&values).unwrap() else {
            return;
        };
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{values}");
        assert!(message.contains(reason), "{values}: {message}");
    }
}

/// TOML has several ways to write a table, and an empty class file disables a class.
#[test]
fn toml_without_a_mistake_is_accepted() {
    for values in [
        config("[class]\nhailo = { except = [] }"),
        config("class.hailo.except = []"),
        config("log_level = 'info' # {{ not a template }}\n[ class . 'hailo' ]\nexcept = []"),
        build_own_class(""),
        build_own_class("version = 1\nresource = 'a.com/{{index}}'\n[[discover]]\npath = '/dev/a'"),
    ] {
        if let Some(output) = helm(&values).unwrap() {
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{values}: {message}");
        }
    }
}

/// Other versions of Helm lack a reader of TOML, or have one that refuses TOML 1.1, such as a table
/// over several lines, which the nodes read.
#[test]
fn toml_is_read_by_versions_of_helm_that_read_all_of_it() {
    let helpers = fs::read_to_string(repository("deploy/helm/templates/_helpers.tpl")).unwrap();
    let (_, condition) = helpers.split_once("semverCompare \"").unwrap();
    let (versions, _) = condition.split_once('"').unwrap();
    for (version, is_read) in [
        ("3.18.6", false),
        ("3.19.4", false),
        ("3.20.0-rc.1", true),
        ("3.21.2", true),
        ("4.0.0-rc.1", false),
        ("4.0.5", false),
        ("4.1.0", true),
        ("4.2.3", true),
        ("5.0.0", true),
    ] {
        let template = format!(
            "kind: Comparison\nisRead: {{{{ semverCompare \"{versions}\" \"{version}\" }}}}\n"
        );
        let comparison = chart_with_file(&json!({}), "templates/comparison.yaml", &template);
        let Some(objects) = comparison.unwrap() else {
            return;
        };
        let is_comparison = |object: &&Value| object["kind"] == "Comparison";
        let compared = objects.iter().find(is_comparison).unwrap();
        assert_eq!(compared["isRead"], is_read, "{version}");
    }
    let table = config("[class]\nhailo = {\n  except = [],\n}");
    if let Some(output) = helm(&table).unwrap() {
        assert!(output.status.success(), "{output:?}");
    }
}
