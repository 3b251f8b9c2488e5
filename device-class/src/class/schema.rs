//! The JSON Schema of class files, for editors.

/// A JSON Schema (draft 7) of class files, generated from the types of this
/// module and their doc comments. `UPDATE_EXPECT=1 cargo test -p
/// boathook-device-class schema` regenerates the file.
pub const JSON_SCHEMA: &str = include_str!("../../schema.json");

/// A value that is either a table or, in short form, a text. The schema describes a type with a
/// short form by this enum.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum TextOr<T> {
    Text(String),
    Table(T),
}

#[cfg(test)]
pub(crate) mod generator;
