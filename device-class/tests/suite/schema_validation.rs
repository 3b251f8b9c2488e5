//! The JSON Schemas accept what the loader accepts. An independent validator compares the shipped
//! class files, and every example in the documents.

use std::fs;
use std::path::{Path, PathBuf};

use device_class::class::JSON_SCHEMA;
use device_class::config::{CONFIG_JSON_SCHEMA, Config};
use jsonschema::Validator;
use serde_json::Value;

use crate::shipped::{self, root};
use crate::{parse, rows};

fn validator(schema: &str) -> Validator {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let id = schema["$id"].as_str().unwrap();
    assert!(id.starts_with("https://"), "{id}");
    jsonschema::draft7::meta::validate(&schema).unwrap_or_else(|error| panic!("{id}: {error}"));
    jsonschema::draft7::new(&schema).unwrap()
}

/// Returns the errors of a TOML text by a schema.
fn validate(schema: &Validator, text: &str) -> Vec<String> {
    let value: Value = toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let errors = schema.iter_errors(&value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

fn find_files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|it| it == extension));
    files.collect()
}

#[test]
fn every_shipped_class_is_valid() {
    let schema = validator(JSON_SCHEMA);
    let files = find_files(&root().join("classes"), "toml");
    assert!(files.len() > 70, "{}", files.len());
    let of_tests = find_files(&root().join("../tests/suite/at_root/classes"), "toml");
    assert!(of_tests.len() > 8, "{}", of_tests.len());
    for file in files.into_iter().chain(of_tests) {
        let errors = validate(&schema, &fs::read_to_string(&file).unwrap());
        assert!(errors.is_empty(), "{}: {errors:#?}", file.display());
    }
}

/// The configurations that the manifests bring.
#[test]
fn every_shipped_configuration_is_valid() {
    let schema = validator(CONFIG_JSON_SCHEMA);
    for name in ["base", "components/dummy-npu"] {
        let file = root().join(format!("../deploy/{name}/plugin.toml"));
        let text = fs::read_to_string(&file).unwrap();
        Config::parse(Path::new("config.toml"), &text).unwrap();
        let errors = validate(&schema, &text);
        assert!(errors.is_empty(), "{}: {errors:#?}", file.display());
    }
}

/// A block of TOML in a document.
struct Example {
    document: String,
    text: String,
    is_config: bool,
}

/// Returns the blocks of TOML in the documents: class files and parts of config.toml. The one for
/// the scheduler's own configuration is left out, and each other block must be one of the two.
fn collect_examples() -> Vec<Example> {
    let mut documents = find_files(&root().join("../docs"), "md");
    documents.push(root().join("../README.md"));
    let mut examples = Vec::new();
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        let blocks = text.split("```toml\n").skip(1);
        for block in blocks.map(|block| block.split("```").next().unwrap()) {
            let begins = |starts: &[&str]| {
                let mut lines = block.lines();
                lines.any(|line| starts.iter().any(|start| line.starts_with(start)))
            };
            let is_config = begins(&["[class.", "[trust]", "[runtime]"]);
            if begins(&["# scheduler.toml"]) {
                continue;
            }
            let is_class = begins(&["version = ", "extends = "]);
            assert!(is_config || is_class, "{}: {block}", path.display());
            examples.push(Example {
                document: path.display().to_string(),
                text: block.to_owned(),
                is_config,
            });
        }
    }
    examples
}

#[test]
fn every_example_of_the_documents_is_valid() {
    let (classes, config) = (validator(JSON_SCHEMA), validator(CONFIG_JSON_SCHEMA));
    let examples = collect_examples();
    let count = |is_config| {
        examples
            .iter()
            .filter(|it| it.is_config == is_config)
            .count()
    };
    assert!(
        count(true) >= 5 && count(false) >= 5,
        "{} {}",
        count(true),
        count(false)
    );
    let directory = tempfile::tempdir().unwrap();
    for Example {
        document,
        text,
        is_config,
    } in &examples
    {
        let (schema, loaded) = if *is_config {
            let loaded = Config::parse(Path::new("config.toml"), text).map(|_| ());
            (&config, loaded)
        } else {
            let file = directory.path().join("example.toml");
            fs::write(&file, text).unwrap();
            let source = shipped::source_of_file(&file);
            (&classes, source.parse().map(|_| ()))
        };
        assert!(
            loaded.is_ok(),
            "{document}: {}\n{text}",
            loaded.unwrap_err()
        );
        let errors = validate(schema, text);
        assert!(errors.is_empty(), "{document}: {errors:#?}\n{text}");
    }
}

const CLASS: &str = r#"version = 1
resource = "example.com/chip"
[request]
env = "CHIPS"
[[discover]]
path = "/dev/chip{index:number}"
[device]
id = "chip-{index}"
nodes = ["/dev/chip{index}", { path = "/dev/ctl", gid = 5 }]
"#;

/// An editor shows the mistakes that the loader refuses.
#[test]
fn mistakes_are_errors_of_the_schema_too() {
    let schema = validator(JSON_SCHEMA);
    assert_eq!(validate(&schema, CLASS), [""; 0]);
    for [right, wrong] in rows(
        r#"
[[discover]] | [discover]
version = 1 | version = 2
version = 1 | description = "x"
env = "CHIPS" | name = "CHIPS"
id = "chip-{index}" | index = "{index}"
gid = 5 | gid = "five"
nodes = | noodles =
nodes = ["/dev/chip{index}", { path = "/dev/ctl", gid = 5 }] | nodes = "/dev/chip{index}"
nodes = ["/dev/chip{index}", { path = "/dev/ctl", gid = 5 }] | nodes = [{ gid = 5 }]
"#,
    ) {
        let text = CLASS.replacen(&right, &wrong, 1);
        assert!(parse("chip", &text).is_err(), "{wrong}");
        assert!(!validate(&schema, &text).is_empty(), "{wrong}");
    }
}

#[test]
fn what_extends_a_class_may_lack_every_key() {
    let schema = validator(JSON_SCHEMA);
    for (text, is_valid) in [
        ("extends = 'chip'\n", true),
        (
            "extends = 'chip'\nrequest = { env = 'X' }\ndevice = { index = '{index}' }\n",
            true,
        ),
        (
            "extends = 'chip'\n[add.device]\nnodes = ['/dev/x']\n[remove]\nedits = [{ nodes = ['/dev/y'] }]\n",
            true,
        ),
        ("extends = 'chip'\nprepare = { timeout = 5 }\n", true),
        ("extends = 'chip'\ndevice = { nodes = '/dev/x' }\n", false),
        (
            "extends = 'chip'\ndevice = { nodes = [{ mode = '0660' }] }\n",
            false,
        ),
        ("device = { index = '{index}' }\n", false),
    ] {
        let errors = validate(&schema, text);
        assert_eq!(errors.is_empty(), is_valid, "{text}: {errors:#?}");
    }
}

#[test]
fn the_configuration_is_checked_key_by_key() {
    let schema = validator(CONFIG_JSON_SCHEMA);
    for [text, is_valid] in rows(
        r#"
log_level = "info" | yes
log_level = "loud" | no
classes = "/etc/classes" | no
class = { chip = { replicas = 4, node_group = "dialout", serve = "dra" } } | yes
class = { chip = { replicas = { "example.com/chip" = 4 } } } | yes
class = { chip = { replicas = "4" } } | no
class = { chip = { only = ["chip-0", { vendor = "0x10ee" }] } } | yes
class = { chip = { directories = ["/run/x", { path = "/run/y", writable = true }] } } | yes
class = { chip = { enable = true } } | no
class = { chip = { forbid = ["a", "a"] } } | yes
trust = { trusted_pods = ["default/x"], allow_removable_masks = true } | yes
runtime = { path = "/usr/bin/crun" } | yes
"#,
    ) {
        let loads = Config::parse(Path::new("config.toml"), &text).is_ok();
        let errors = validate(&schema, &text);
        let expected = is_valid == "yes";
        assert_eq!(
            (loads, errors.is_empty()),
            (expected, expected),
            "{text}: {errors:#?}"
        );
    }
}
