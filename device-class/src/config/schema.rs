//! The JSON Schema of config.toml, for editors.

/// The JSON Schema (draft 7) of config.toml. It is generated from the types of this module and
/// their doc comments: `UPDATE_EXPECT=1 cargo test -p boathook-device-class schema` updates the
/// file.
pub const CONFIG_JSON_SCHEMA: &str = include_str!("../../config.schema.json");

#[cfg(test)]
mod tests {
    use crate::class::schema_generator::{generate_schema, to_json_text};
    use crate::config::Config;

    #[test]
    fn the_schema_is_that_of_the_types() {
        let schema = generate_schema::<Config>("config.schema.json");
        expect_test::expect_file!["../../config.schema.json"].assert_eq(&to_json_text(&schema));
    }
}
