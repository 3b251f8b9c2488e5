//! Generates the JSON Schemas from the types of class files and of config.toml.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

use super::super::attribute::RawAttributeSource;
use super::super::condition::RawCondition;
use super::super::health::RawHealthCheck;
use super::super::links::RawLinks;
use crate::class::*;
use crate::device::Access;
use crate::name::{
    AttributeName, CapabilityName, ClassName, EnvName, GroupName, LinuxCapability, ListName,
    ProgramName, RuntimeName, UnitName, WordName,
};
use crate::pattern::PathPattern;
use crate::template::Template;

/// Describes a type that checks its value by the type from which it is parsed.
macro_rules! read_from {
    ($($type:ty => $raw:ty),* $(,)?) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                generator.subschema_for::<$raw>()
            }
        })*
    };
}

read_from! {
    Access => String,
    AttributeName => String,
    CapabilityName => String,
    ClassName => String,
    LinuxCapability => String,
    ListName => String,
    EnvName => String,
    GroupId => Number,
    GroupName => String,
    NamePattern => String,
    NodeMode => String,
    PodPattern => String,
    PathPattern => String,
    PathTemplate => String,
    ProgramName => String,
    RuntimeName => String,
    SoName => String,
    SoNameTemplate => String,
    LabelName => String,
    Template => String,
    UnitName => String,
    WordName => String,
    AttributeSource => RawAttributeSource,
    Condition => RawCondition,
    Pattern => String,
    UnplannedPattern => String,
    HealthCheck => RawHealthCheck,
    Links => RawLinks,
    Version => One,
    ReplicaCount => Count,
    Timeout => Seconds,
}

/// Numbers within bounds.
macro_rules! numbers {
    ($($name:ident: $schema:tt),* $(,)?) => {
        $(struct $name;
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        })*
    };
}

numbers! {
    One: { "const": 1 },
    Number: { "type": "integer", "minimum": 0, "maximum": u32::MAX },
    Count: { "type": "integer", "minimum": 1, "maximum": MAX_REPLICAS },
    Seconds: { "type": "integer", "minimum": 1, "maximum": MAX_CONTAINER_START.as_secs() },
}

/// The address at which a release has the schemas.
const ADDRESS: &str = "https://raw.githubusercontent.com/boathook/boathook/main/device-class";

#[test]
fn the_schema_of_class_files_is_that_of_the_types() {
    let mut schema = generate::<ClassSpec>("schema.json");
    move_required_keys(&mut schema);
    expect_test::expect_file!["../../../schema.json"].assert_eq(&write(&schema));
}

/// Generates the schema of a type. `file` is its name in the directory of this crate.
pub(crate) fn generate<T: JsonSchema>(file: &str) -> Value {
    let generator = SchemaSettings::draft07().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    let Value::Object(definitions) = schema["definitions"].take() else {
        panic!("no definitions");
    };
    let mut tables = Map::new();
    for (name, definition) in &definitions {
        if is_table(definition) {
            tables.insert(name.clone(), simplify(definition, &definitions));
        }
    }
    schema = simplify(&schema, &definitions);
    schema["definitions"] = tables.into();
    schema["$id"] = format!("{ADDRESS}/{file}").into();
    schema
}

/// Writes a schema. It is indented by tabs, because it is part of a program, which must be small.
pub(crate) fn write(schema: &Value) -> String {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"\t");
    let mut writer = Serializer::with_formatter(&mut text, formatter);
    schema.serialize(&mut writer).unwrap();
    String::from_utf8(text).unwrap() + "\n"
}

/// Moves the lists of required keys into a condition that files without `extends` meet. A file that
/// extends another one says only what differs. Tables in lists are not merged, and keep theirs.
fn move_required_keys(schema: &mut Value) {
    let (mut root, Value::Object(mut definitions)) = (schema.clone(), schema["definitions"].take())
    else {
        panic!("no definitions");
    };
    let required = take_required_keys(&mut root, &mut definitions);
    *schema = root;
    schema["definitions"] = definitions.into();
    schema["if"] = json!({ "required": ["extends"] });
    schema["else"] = required;
}

/// Takes the lists of required keys out of a table and of the tables in it. Returns them in a schema
/// of the same form.
fn take_required_keys(table: &mut Value, definitions: &mut Map<String, Value>) -> Value {
    let mut taken = Map::new();
    let mut inner = Map::new();
    for (key, property) in table["properties"].as_object().into_iter().flatten() {
        let name = property["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next());
        let Some((name, mut definition)) = name.and_then(|name| {
            let definition = definitions.get(name)?;
            Some((name.to_owned(), definition.clone()))
        }) else {
            continue;
        };
        let required = take_required_keys(&mut definition, definitions);
        definitions.insert(name, definition);
        if required != json!({}) {
            inner.insert(key.clone(), required);
        }
    }
    if let Some(required) = table
        .as_object_mut()
        .and_then(|table| table.remove("required"))
    {
        taken.insert("required".into(), required);
    }
    if !inner.is_empty() {
        taken.insert("properties".into(), inner.into());
    }
    taken.into()
}

fn is_table(definition: &Value) -> bool {
    definition.get("properties").is_some()
}

/// The schema as one writes it for TOML, which has no null. Names of types
/// that are no tables are replaced by what they represent.
fn simplify(schema: &Value, definitions: &Map<String, Value>) -> Value {
    match schema {
        Value::Array(items) => items
            .iter()
            .map(|item| simplify(item, definitions))
            .collect(),
        Value::Object(object) => simplify_object(object, definitions).into(),
        other => other.clone(),
    }
}

fn simplify_object(
    object: &Map<String, Value>,
    definitions: &Map<String, Value>,
) -> Map<String, Value> {
    let mut plain_object = Map::new();
    for (key, value) in object {
        match (key.as_str(), value) {
            ("default" | "format" | "uniqueItems", _) => {}
            ("properties", Value::Object(keys)) => {
                let keys = keys.iter();
                let keys = keys.map(|(key, of)| (key.clone(), simplify(of, definitions)));
                plain_object.insert(key.clone(), Value::Object(keys.collect()));
            }
            ("description" | "title", Value::String(text)) => {
                let text = text.replace('\n', " ");
                plain_object.insert(key.clone(), text.into());
            }
            ("type", Value::Array(kinds)) => {
                plain_object.insert(key.clone(), kinds[0].clone());
            }
            ("anyOf" | "allOf", Value::Array(forms)) => {
                let null = |form: &&Value| form["type"] != "null";
                let forms: Vec<_> = forms.iter().filter(null).collect();
                match forms.as_slice() {
                    [form] => merge(&mut plain_object, simplify(form, definitions)),
                    forms => {
                        let forms = forms.iter().map(|form| simplify(form, definitions));
                        plain_object.insert(key.clone(), forms.collect());
                    }
                }
            }
            // The variants of the type are described with the key.
            ("oneOf", Value::Array(variants)) => {
                let values = variants.iter().map(|variant| variant["const"].clone());
                plain_object.insert("enum".into(), values.collect());
            }
            ("$ref", Value::String(name)) => {
                let name = name.rsplit('/').next().unwrap_or_default();
                match &definitions[name] {
                    table if is_table(table) => {
                        plain_object.insert(key.clone(), value.clone());
                    }
                    other => merge(&mut plain_object, simplify(other, definitions)),
                }
            }
            _ => {
                plain_object.insert(key.clone(), simplify(value, definitions));
            }
        }
    }
    plain_object
}

/// Adds a type; the key's own description stays.
fn merge(object: &mut Map<String, Value>, type_schema: Value) {
    let Value::Object(type_schema) = type_schema else {
        return;
    };
    for (key, value) in type_schema {
        if key != "description" {
            object.entry(key).or_insert(value);
        }
    }
}
