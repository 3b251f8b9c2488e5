//! The schema of class files for editors.

/// A JSON Schema (draft 7) of class files. It is written by hand; tests hold
/// it to the types of this module, key by key, and to the shipped classes.
pub const JSON_SCHEMA: &str = include_str!("../../schema.json");
