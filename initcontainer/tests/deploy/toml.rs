//! Tests of what the chart says about TOML in its values: config, and the class files in
//! `classes.own`.

use std::fs;

use device_class::config::Config;
use device_class::strict_toml::FileError;
use harness::manifests::{chart_with_file, helm, repository};
use serde_json::{Value, json};

/// The chart cannot read the image, so it has a list of the keys that its version knows, and the
/// types of those of config.toml. `UPDATE_FIXTURES=1` writes the list.
#[test]
fn the_chart_lists_the_keys_of_its_version() {
    let config = read_schema("device-class/config.schema.json");
    let types = |table: &Value| -> Value {
        let keys = table["properties"].as_object().unwrap().iter();
        keys.map(|(key, schema)| (key.clone(), json!(type_of(schema, ""))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let defined = |name: &str| types(&config["definitions"][name]);
    let file = read_schema("device-class/schema.json");
    let file: Vec<&String> = file["properties"].as_object().unwrap().keys().collect();
    let wanted = json!({
        "class": defined("ClassConfig"),
        "config": types(&config),
        "file": file,
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

fn read_schema(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(repository(path)).unwrap()).unwrap()
}

/// Returns the words by which the chart knows the type of a value, with `plural` at the end of nouns.
fn type_of(schema: &Value, plural: &str) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        return values.join(" or ");
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let alternatives = alternatives.iter().map(|schema| type_of(schema, plural));
        return alternatives.collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str() {
        Some(noun @ ("boolean" | "string")) => format!("{noun}{plural}"),
        Some("integer") => format!(
            "integer{plural} from {} to {}",
            schema["minimum"], schema["maximum"]
        ),
        Some("array") => format!("array{plural} of {}", type_of(&schema["items"], "s")),
        // The keys of these tables are checked by the chart itself, or only by the programs.
        Some("object") if schema["additionalProperties"]["$ref"].is_string() => "table".to_owned(),
        Some("object") => {
            let values = type_of(&schema["additionalProperties"], "s");
            format!("table{plural} of {values}")
        }
        None if schema["$ref"].is_string() => format!("table{plural}"),
        _ => panic!("no words for {schema}"),
    }
}

fn config(text: &str) -> Value {
    json!({ "config": text })
}

/// A value of each type.
const VALID: &str = "classes = ['/etc/boathook/classes.d']
log_level = 'info'
runtime = {}
[trust]
allow_removable_masks = false
trusted_pods = ['monitoring']
[class.hailo]
enabled = true
replicas = 65535
except = ['0000:3b:00.0', { model = 'a' }]
only = []
placement = 'spread'
env = { A = 'b' }
map.model.a = 'b'
directories = ['/run/a', { path = '/run/b', writable = true }]
node_gid = 4294967295
[class.amd-gpu]
replicas = { 'amd.com/gpu' = 2 }
";

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
            json!({"kubeletDir": "/k", "config": "[ trust ]\ntrusted_pods = []\n# kubelet_checkpoint"}),
            "kubeletDir is set: set kubelet_checkpoint in the table [trust] of config, too",
        ),
        (
            json!({"kubeletDir": "/k", "config": "trust.trusted_pods = []"}),
            "kubeletDir is set: set kubelet_checkpoint in the table [trust] of config, too",
        ),
        (
            json!({"replicas": {"hailo": 2}, "config": "class.hailo.only = []"}),
            "config has the table [class.hailo], which classes, replicas or dra.classes write",
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

/// For each type one value of another one. A node without a config.toml would start no plugin.
#[test]
fn a_value_of_another_type_is_refused_before_anything_is_applied() {
    for (table, wrong, wanted) in [
        ("", "classes = '/etc'", "array of strings"),
        (
            "",
            "log_level = 'debug'",
            "\"error\" or \"warning\" or \"info\"",
        ),
        ("", "runtime = 'crun'", "table"),
        ("[runtime]", "path = ['runc']", "string"),
        ("[trust]", "trusted_pods = 'monitoring'", "array of strings"),
        ("[trust]", "allow_removable_masks = 'yes'", "boolean"),
        ("[class.hailo]", "enabled = 'true'", "boolean"),
        (
            "[class.hailo]",
            "replicas = 'four'",
            "integer from 1 to 65535 or table of integers from 1 to 65535",
        ),
        (
            "[class.hailo]",
            "replicas = 0",
            "integer from 1 to 65535 or table of integers from 1 to 65535",
        ),
        (
            "[class.hailo]",
            "replicas = 1.5",
            "integer from 1 to 65535 or table of integers from 1 to 65535",
        ),
        (
            "[class.hailo]",
            "replicas = { 'hailo.ai/npu' = 65536 }",
            "integer from 1 to 65535 or table of integers from 1 to 65535",
        ),
        (
            "[class.hailo]",
            "except = 'GPU-x'",
            "array of strings or tables of strings",
        ),
        (
            "[class.hailo]",
            "only = [0]",
            "array of strings or tables of strings",
        ),
        (
            "[class.hailo]",
            "only = [{ pci = 1 }]",
            "array of strings or tables of strings",
        ),
        (
            "[class.hailo]",
            "placement = 'dense'",
            "\"packed\" or \"spread\" or \"spread-shares\"",
        ),
        ("[class.hailo]", "env = { A = 1 }", "table of strings"),
        (
            "[class.hailo]",
            "map = { model = 'a' }",
            "table of tables of strings",
        ),
        (
            "[class.hailo]",
            "directories = [1]",
            "array of strings or tables",
        ),
        (
            "[class.hailo]",
            "node_gid = -1",
            "integer from 0 to 4294967295",
        ),
    ] {
        let text = format!("{table}\n{wrong}");
        let Some(output) = helm(&config(&text)).unwrap() else {
            return;
        };
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}");
        let (key, _) = wrong.split_once(' ').unwrap();
        for reason in [
            format!("config has {key} = "),
            format!("which has to be {wanted}: correct it"),
        ] {
            assert!(message.contains(&reason), "{text}: {message}");
        }
        // The programs on the nodes refuse the same.
        assert!(loads(&text).is_err(), "{text}");
    }
}

fn loads(text: &str) -> Result<Config, FileError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    fs::write(&file, text).unwrap();
    Config::load(Some(&file))
}

/// TOML has several ways to write a table, and an empty class file disables a class.
#[test]
fn toml_without_a_mistake_is_accepted() {
    loads(VALID).unwrap();
    for values in [
        config("[class]\nhailo = { except = [] }"),
        config("class.hailo.except = []"),
        config(VALID),
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
    let checks = fs::read_to_string(repository("deploy/helm/templates/_checks.tpl")).unwrap();
    let (_, condition) = checks.split_once("semverCompare \"").unwrap();
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
