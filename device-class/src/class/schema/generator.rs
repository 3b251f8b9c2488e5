//! Generates the JSON Schemas of class files and of config.toml from their Rust types.

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
    ProgramName, RequirementName, RuntimeName, UnitName,
};
use crate::pattern::PathPattern;
use crate::template::Template;

/// Implements `JsonSchema` for types that check their value, such as `ClassName`. Each type gets
/// the schema of the type from which it is converted, such as `String`.
macro_rules! schema_from {
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

schema_from! {
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
    RequirementName => String,
    AttributeSource => RawAttributeSource,
    Condition => RawCondition,
    RegexPattern => String,
    ReportPattern => String,
    HealthCheck => RawHealthCheck,
    Links => RawLinks,
    Version => One,
    ReplicaCount => Count,
    Timeout => Seconds,
}

/// Declares types whose JSON Schema is an integer with a lower and an upper bound.
macro_rules! number_types {
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

number_types! {
    One: { "const": 1 },
    Number: { "type": "integer", "minimum": 0, "maximum": u32::MAX },
    Count: { "type": "integer", "minimum": 1, "maximum": MAX_REPLICAS },
    Seconds: { "type": "integer", "minimum": 1, "maximum": MAX_CONTAINER_START_TIME.as_secs() },
}

/// The URL of the directory that contains the published schemas. The `$id` of a schema begins with
/// it.
const SCHEMA_URL: &str = "https://raw.githubusercontent.com/boathook/boathook/main/device-class";

#[test]
fn the_schema_of_class_files_is_that_of_the_types() {
    let mut schema = generate_schema::<ClassSpec>("schema.json");
    move_required_keys(&mut schema);
    expect_test::expect_file!["../../../schema.json"].assert_eq(&to_json_text(&schema));
}

/// Generates the JSON Schema of a type. `file` is the name of the schema's file, such as
/// `schema.json`, with which its `$id` ends.
pub(crate) fn generate_schema<T: JsonSchema>(file: &str) -> Value {
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
    schema["$id"] = format!("{SCHEMA_URL}/{file}").into();
    schema
}

/// Serializes a schema to text. It is indented with tabs, because the text becomes a part of the
/// programs, and these must be small.
pub(crate) fn to_json_text(schema: &Value) -> String {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"\t");
    let mut writer = Serializer::with_formatter(&mut text, formatter);
    schema.serialize(&mut writer).unwrap();
    String::from_utf8(text).unwrap() + "\n"
}

/// Moves the lists of required keys into a condition, so that they apply only to files without
/// `extends`. A file with `extends` has only the keys that differ from the extended file. Tables in
/// lists keep their required keys, because they are not merged with tables of the extended file.
fn move_required_keys(schema: &mut Value) {
    let (mut root, Value::Object(mut definitions)) = (schema.clone(), schema["definitions"].take())
    else {
        panic!("no definitions");
    };
    let required_keys = take_required_keys(&mut root, &mut definitions);
    *schema = root;
    schema["definitions"] = definitions.into();
    schema["if"] = json!({ "required": ["extends"] });
    schema["else"] = required_keys;
}

/// Removes the lists of required keys from the schema of a table and of its subtables. Returns
/// these lists in a schema with the same structure.
fn take_required_keys(table: &mut Value, definitions: &mut Map<String, Value>) -> Value {
    let mut required_schema = Map::new();
    let mut subtables = Map::new();
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
        let required_keys = take_required_keys(&mut definition, definitions);
        definitions.insert(name, definition);
        if required_keys != json!({}) {
            subtables.insert(key.clone(), required_keys);
        }
    }
    if let Some(required_keys) = table
        .as_object_mut()
        .and_then(|table| table.remove("required"))
    {
        required_schema.insert("required".into(), required_keys);
    }
    if !subtables.is_empty() {
        required_schema.insert("properties".into(), subtables.into());
    }
    required_schema.into()
}

fn is_table(definition: &Value) -> bool {
    definition.get("properties").is_some()
}

/// Returns the schema without `null`, because TOML has no null. Replaces a reference to a type that
/// is not a table by the schema of that type.
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
                let keys = keys.map(|(key, value)| (key.clone(), simplify(value, definitions)));
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
                let is_not_null = |form: &&Value| form["type"] != "null";
                let forms: Vec<_> = forms.iter().filter(is_not_null).collect();
                match forms.as_slice() {
                    [form] => merge_type_schema(&mut plain_object, simplify(form, definitions)),
                    forms => {
                        let forms = forms.iter().map(|form| simplify(form, definitions));
                        plain_object.insert(key.clone(), forms.collect());
                    }
                }
            }
            // Only the values of an enum are kept, because the description of the key already
            // explains each of them.
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
                    other => merge_type_schema(&mut plain_object, simplify(other, definitions)),
                }
            }
            _ => {
                plain_object.insert(key.clone(), simplify(value, definitions));
            }
        }
    }
    plain_object
}

/// Adds the schema of a type to the schema of a key. The key's own entries win, and the description
/// of the type is dropped.
fn merge_type_schema(object: &mut Map<String, Value>, type_schema: Value) {
    let Value::Object(type_schema) = type_schema else {
        return;
    };
    for (key, value) in type_schema {
        if key != "description" {
            object.entry(key).or_insert(value);
        }
    }
}
