//! The documentation has what the JSON Schema and the shipped classes say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use device_class::host::RecordedHost;
use device_class::load;
use serde_json::Value;

use crate::parse;
use crate::shipped::root;

/// The tables of the schema, in the order of the documentation.
const TABLES: [&str; 24] = [
    "",
    "request",
    "requirements",
    "pairs",
    "facts",
    "fact_lines",
    "attribute",
    "source",
    "condition",
    "health",
    "device",
    "links",
    "node",
    "make",
    "library",
    "library_names",
    "image_libraries",
    "file",
    "directory",
    "mask",
    "edits",
    "allocate",
    "sharing",
    "prepare",
];

fn schema() -> Value {
    // Not the constant: another test may just have regenerated the file.
    let text = std::fs::read_to_string(root().join("schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn table<'a>(schema: &'a Value, name: &str) -> &'a Value {
    match name {
        "" => schema,
        name => &schema["definitions"][name],
    }
}

/// No two shipped classes share a variable, or a resource: a container would
/// not know which of them it asks, nor a pod what it gets.
#[test]
fn no_two_classes_speak_for_each_other() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for source in load::sources(&[root().join("classes")]).unwrap() {
        let class = source.parse().unwrap();
        for word in [
            class.spec.request.env.to_string(),
            class.spec.resource.to_string(),
        ] {
            let owner = owners.insert(word.clone(), class.name.to_string());
            assert_eq!(owner, None, "{word} is of {} too", class.name);
        }
    }
}

/// The documentation, whose generated parts stand between two comments.
fn check_part(name: &str, content: &str) {
    let path = root().join("../docs/device-classes.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    let wanted = format!("{before}{begin}{content}{end}{after}");
    expect_test::expect_file![path].assert_eq(&wanted);
}

/// Both parts in one test: they are in one file.
#[test]
fn the_documentation_has_every_key_and_every_class() {
    let schema = schema();
    let defined = schema["definitions"].as_object().unwrap().keys();
    let defined: BTreeSet<&str> = defined.map(String::as_str).chain([""]).collect();
    assert_eq!(BTreeSet::from(TABLES), defined);
    let mut text = String::new();
    for name in TABLES {
        let table = table(&schema, name);
        let title = if name.is_empty() {
            "Top of the file"
        } else {
            table["title"].as_str().unwrap()
        };
        let description = table["description"].as_str().unwrap();
        writeln!(
            text,
            "\n### {title}\n\n{description}\n\n| key | value | meaning |\n|---|---|---|"
        )
        .unwrap();
        let required = table["required"].as_array().cloned().unwrap_or_default();
        for (key, property) in table["properties"].as_object().unwrap() {
            let must = if required.contains(&Value::from(key.as_str())) {
                " (required)"
            } else {
                ""
            };
            let (kind, meaning) = (kind(&schema, property), meaning(property));
            writeln!(text, "| `{key}`{must} | {kind} | {meaning} |").unwrap();
        }
    }
    check_part("reference", &(text + "\n"));

    let mut text = String::from("\n| class | devices | resource | variable |\n|---|---|---|---|\n");
    for class in load::sources(&[root().join("classes")]).unwrap() {
        let class = class.parse().unwrap();
        let (name, spec) = (&class.name, &class.spec);
        let offered = if spec.enabled {
            ""
        } else {
            " (not enabled by default)"
        };
        let (what, resource, env) = (&spec.description, &spec.resource, &spec.request.env);
        writeln!(text, "| [{name}](../device-class/classes/{name}.toml) | {what}{offered} | `{resource}` | `{env}` |").unwrap();
    }
    check_part("classes", &(text + "\n"));
}

fn kind(schema: &Value, property: &Value) -> String {
    if let Some(name) = property["$ref"].as_str() {
        let (_, name) = name.rsplit_once('/').unwrap();
        return format!(
            "table {}",
            schema["definitions"][name]["title"].as_str().unwrap()
        );
    }
    if property.get("const").is_some() {
        return "number".into();
    }
    if let Some(values) = property["enum"].as_array() {
        let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(" or ");
    }
    match property["type"].as_str().unwrap() {
        "array" if property["items"].get("anyOf").is_some() => "list of texts or tables".into(),
        "array" if property["items"].get("$ref").is_some() => "list of tables".into(),
        "array" => "list of texts".into(),
        "object" if property["additionalProperties"]["type"] == "array" => "table of lists".into(),
        "object" => "table of texts".into(),
        "string" => "text".into(),
        "integer" => "number".into(),
        _ => "`true` or `false`".into(),
    }
}

fn meaning(property: &Value) -> String {
    property["description"]
        .as_str()
        .unwrap()
        .replace('|', "\\|")
}

/// The tutorial's file is a class in ten lines, and finds what the tutorial
/// says that it finds.
#[test]
fn the_tutorial_works() {
    let text = std::fs::read_to_string(root().join("../docs/device-classes.md")).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (file, _) = rest.split_once("```").unwrap();
    let lines = file.lines().filter(|line| !line.trim().is_empty());
    assert!(lines.count() <= 10, "{file}");
    let class = parse("mychip", file).unwrap();
    let host = "char /dev/mychip0 240:0\nchar /dev/mychip1 240:1\nchar /dev/mychip12 240:12\n";
    let host = RecordedHost::parse(host).unwrap();
    let found = device_class::discover::devices(&class, &host);
    let ids: Vec<_> = found.devices.iter().map(|d| d.id.as_str()).collect();
    assert_eq!(ids, ["mychip-0", "mychip-1", "mychip-12"]);
    assert!(found.warnings.is_empty());
    for id in ids {
        assert!(text.contains(id), "the tutorial does not show {id}");
    }
}
