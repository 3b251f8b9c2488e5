//! Adds the handler's tables to an existing configuration file. This is done if containerd reads no
//! drop-ins, or if a drop-in would replace a whole section of the existing file.

use std::path::{Path, PathBuf};

use toml_edit::Document;

use super::PlanInputs;
use super::handler::{Handler, refuse_existing_handlers};
use super::schema::{SCHEMA_V2, Schema};
use crate::engine_properties::RUNTIME_HANDLER_NAME;
use crate::error::Error;
use crate::toml_text::{
    append_block, describe_parse_error, get_item, insert_line, parse_document, set_key,
};

/// Returns the path and the new text of the file that must be changed.
///
/// `schema` is `None` if no file has a version or a setting that depends on the version. The file
/// then gets version 2, which every containerd from 1.3 on reads.
pub(super) fn plan_files(
    main_path: &Path,
    schema: Option<&'static Schema>,
    config_paths: &[PathBuf],
    inputs: &PlanInputs<'_>,
) -> Result<(PathBuf, String), Error> {
    let path = find_effective_file(
        main_path,
        schema.unwrap_or(&SCHEMA_V2),
        config_paths,
        inputs,
    )?;
    let mut text = inputs
        .snapshot
        .get_text(&path)
        .unwrap_or_default()
        .to_owned();
    if schema.is_none() {
        text = insert_line(&path, &text, "version = 2")?;
    }
    let schema = schema.unwrap_or(&SCHEMA_V2);
    refuse_existing_handlers(schema, config_paths, inputs)?;
    let handler = Handler::new(schema, config_paths, inputs)?;
    let mut body = handler.format_tables() + &handler.format_runc_table();
    if inputs.options.set_default {
        match set_key(
            &path,
            &text,
            &schema.handlers_table_path(),
            "default_runtime_name",
            RUNTIME_HANDLER_NAME,
        )? {
            Some(edited_text) => text = edited_text,
            None => body += &handler.format_default_table(),
        }
    }
    let text = append_block(&text, &body);
    // If a table is written inline (`{ … }`), TOML does not allow a `[header]` for a table in it.
    if let Err(error) = Document::parse(&*text) {
        let (line, message) = describe_parse_error(&text, &error);
        let problem = format!(
            "the handler's tables cannot be added ({message}); write the tables above \"runtimes\" \
             with [headers], not inline"
        );
        return Err(Error::new_at_line(&path, line, problem));
    }
    Ok((path, text))
}

/// Returns the file whose CRI section takes effect. In containerd 1.x each section replaces the
/// sections of earlier files, so this is the last file with a CRI section.
fn find_effective_file(
    main_path: &Path,
    schema: &Schema,
    config_paths: &[PathBuf],
    inputs: &PlanInputs<'_>,
) -> Result<PathBuf, Error> {
    for path in config_paths.iter().rev() {
        let doc = parse_document(path, inputs.snapshot.get_text(path).unwrap_or_default())?;
        if get_item(&doc, &["plugins", schema.plugin_id]).is_some() {
            return Ok(path.clone());
        }
    }
    Ok(main_path.to_path_buf())
}
