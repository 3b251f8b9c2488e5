//! The JSON Schema of class files, for editors.

/// The JSON Schema (draft 7) of class files. It is generated from the types of this module and
/// their doc comments: `UPDATE_EXPECT=1 cargo test -p boathook-device-class schema` updates the
/// file.
pub const JSON_SCHEMA: &str = include_str!("../../schema.json");

/// A value that is either a table or, in short form, a text. The schema uses this enum for each
/// type that has a short form.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum TextOrTable<T> {
    Text(String),
    Table(T),
}

#[cfg(test)]
pub(crate) mod generator;
