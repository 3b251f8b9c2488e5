//! The JSON Schema, the types that read class files, the shipped classes and
//! the documentation all say the same.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use device_class::DeviceClass;
use device_class::class::JSON_SCHEMA;
use device_class::host::RecordedHost;
use device_class::load;
use device_class::name::ClassName;
use serde_json::Value;

/// Each table of the schema, and a text with a key in it that does not exist.
/// The error then names those that do.
const TABLES: [(&str, &str); 19] = [
    ("", "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1"),
    ("request", "request = { QQ = 1 }"),
    ("requirements", "request = { requirements = { QQ = 1 } }"),
    ("pairs", "request = { pairs = { QQ = 1 } }"),
    ("attribute", "attributes = [{ QQ = 1 }]"),
    ("source", "discover = [{ QQ = 1 }]"),
    ("condition", "discover = [{ require = [{ QQ = 1 }] }]"),
    ("health", "discover = [{ health = [{ QQ = 1 }] }]"),
    ("device", "device = { QQ = 1 }"),
    ("node", "edits = [{ nodes = [{ QQ = 1 }] }]"),
    ("library", "edits = [{ libraries = [{ QQ = 1 }] }]"),
    (
        "library_names",
        "edits = [{ libraries_matching = { QQ = 1 } }]",
    ),
    ("file", "edits = [{ files = [{ QQ = 1 }] }]"),
    ("directory", "edits = [{ directories = [{ QQ = 1 }] }]"),
    ("mask", "edits = [{ masks = [{ QQ = 1 }] }]"),
    ("edits", "edits = [{ QQ = 1 }]"),
    ("allocate", "allocate = { QQ = 1 }"),
    ("sharing", "sharing = { QQ = 1 }"),
    ("prepare", "prepare = { QQ = 1 }"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn schema() -> Value {
    serde_json::from_str(JSON_SCHEMA).unwrap()
}

fn table<'a>(schema: &'a Value, name: &str) -> &'a Value {
    match name {
        "" => schema,
        name => &schema["definitions"][name],
    }
}

fn parse(name: &str, text: &str) -> Result<DeviceClass, String> {
    let name = ClassName::try_from(name.to_owned()).unwrap();
    DeviceClass::parse(name, Path::new("x.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn the_schema_has_the_keys_that_are_read() {
    let schema = schema();
    let tables: BTreeSet<&str> = TABLES.map(|(name, _)| name).into();
    let defined = schema["definitions"].as_object().unwrap().keys();
    let defined: BTreeSet<&str> = defined.map(String::as_str).chain([""]).collect();
    assert_eq!(tables, defined);
    for (name, text) in TABLES {
        let unknown = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq";
        let error = parse("x", &text.replace("QQ", unknown)).unwrap_err();
        let (_, known) = error
            .split_once("known keys here: ")
            .unwrap_or_else(|| panic!("{name}: {error}"));
        let known: BTreeSet<&str> = known.split(", ").collect();
        let properties = table(&schema, name)["properties"].as_object().unwrap();
        let properties: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(properties, known, "{name}");
    }
}

#[test]
fn the_shipped_classes_are_of_the_schema() {
    let schema = schema();
    for entry in std::fs::read_dir(root().join("classes")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let value: toml::Table = toml::from_str(&text).unwrap();
        let value = serde_json::to_value(value).unwrap();
        if let Err(fault) = validate(&schema, &schema, &value) {
            panic!("{}: {fault}", path.display());
        }
    }
    for bad in [
        r#"{ "version": 2 }"#,
        r#"{ "version": 1, "request": { "env": "X" }, "resource": "a/b", "device": { "id": "x" } }"#,
    ] {
        let bad = serde_json::from_str(bad).unwrap();
        assert!(validate(&schema, &schema, &bad).is_err(), "{bad}");
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

/// The ConfigMap for a cluster has every class.
#[test]
fn the_deployment_has_every_class() {
    let text = std::fs::read_to_string(root().join("classes/kustomization.yaml")).unwrap();
    let listed = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "));
    let listed: Vec<&str> = listed.filter(|name| name.ends_with(".toml")).collect();
    let sources = load::sources(&[root().join("classes")]).unwrap();
    let names: Vec<_> = sources
        .iter()
        .map(|source| format!("{}.toml", source.name))
        .collect();
    assert_eq!(listed, names);
}

/// As much of JSON Schema as the schema uses.
fn validate(whole: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let fault = |what: &str| Err(format!("{value} is not {what}"));
    if let Some(name) = schema["$ref"].as_str() {
        let (_, name) = name.rsplit_once('/').unwrap();
        return validate(whole, &whole["definitions"][name], value);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = any.iter().any(|one| validate(whole, one, value).is_ok());
        return if fits {
            Ok(())
        } else {
            fault("any of the forms")
        };
    }
    if let Some(only) = schema.get("const") {
        return if value == only {
            Ok(())
        } else {
            fault("the constant")
        };
    }
    if let Some(values) = schema["enum"].as_array() {
        return if values.contains(value) {
            Ok(())
        } else {
            fault("one of the values")
        };
    }
    match (schema["type"].as_str().unwrap(), value) {
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => Ok(()),
        ("integer", Value::Number(number)) => {
            let number = number.as_i64().unwrap();
            let (low, high) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
            let fits =
                low.is_none_or(|low| number >= low) && high.is_none_or(|high| number <= high);
            if fits { Ok(()) } else { fault("in the range") }
        }
        ("array", Value::Array(items)) => {
            let mut items = items.iter();
            items.try_for_each(|item| validate(whole, &schema["items"], item))
        }
        ("object", Value::Object(object)) => {
            for required in schema["required"].as_array().into_iter().flatten() {
                if !object.contains_key(required.as_str().unwrap()) {
                    return Err(format!("{required} is missing in {value}"));
                }
            }
            for (key, value) in object {
                let of = match &schema["properties"][key] {
                    Value::Null => &schema["additionalProperties"],
                    of => of,
                };
                if of == false {
                    return Err(format!("unknown key {key}"));
                }
                validate(whole, of, value).map_err(|fault| format!("{key}: {fault}"))?;
            }
            Ok(())
        }
        (wanted, _) => fault(wanted),
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
    let mut text = String::new();
    for (name, _) in TABLES {
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
            let (kind, meaning) = (kind(&schema, property), meaning(&schema, property));
            writeln!(text, "| `{key}`{must} | {kind} | {meaning} |").unwrap();
        }
    }
    check_part("reference", &(text + "\n"));

    let mut text =
        String::from("\n| class | what | resource | asked for by |\n|---|---|---|---|\n");
    for class in load::sources(&[root().join("classes")]).unwrap() {
        let class = class.parse().unwrap();
        let (name, spec) = (&class.name, &class.spec);
        let offered = if spec.enabled {
            ""
        } else {
            " (when switched on)"
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
            "table `{}`",
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

fn meaning(schema: &Value, property: &Value) -> String {
    let text = property["description"].as_str().map(str::to_owned);
    let text = text.unwrap_or_else(|| {
        let (_, name) = property["$ref"].as_str().unwrap().rsplit_once('/').unwrap();
        schema["definitions"][name]["description"]
            .as_str()
            .unwrap()
            .to_owned()
    });
    text.replace('|', "\\|")
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
