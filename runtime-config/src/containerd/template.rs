//! Plans the files of k3s and rke2, which generate containerd's file at each start. They use a
//! Go template, or their built-in template "base" if there is none (k3s documentation,
//! "Configuring containerd").

use std::path::{Path, PathBuf};

use super::handler::{self, Handler};
use super::schema::{SCHEMA_V2, SCHEMA_V3, Schema};
use super::{PlanInputs, boathook_drop_in_path, build_drop_in, documents, schema};
use crate::engine_properties::RUNTIME_HANDLER_NAME;
use crate::error::Error;
use crate::toml_text::{append_block, find_line_number, format_managed_file};

/// Returns the path of containerd's file, which k3s and rke2 generate at each start. The text of
/// this file shows which version of the configuration format is in use.
pub(super) fn generated_config_path(dir: &str) -> PathBuf {
    Path::new(dir).join("config.toml")
}

fn template_path(dir: &str, schema: &Schema) -> PathBuf {
    let name = if *schema == SCHEMA_V3 {
        "config-v3.toml.tmpl"
    } else {
        "config.toml.tmpl"
    };
    Path::new(dir).join(name)
}

/// Returns the path of Boathook's drop-in. k3s and rke2 of 2025 and later generate a file that
/// imports drop-ins.
fn drop_in_path(dir: &str) -> PathBuf {
    boathook_drop_in_path(&drop_in_dir(dir))
}

pub(super) fn drop_in_dir(dir: &str) -> PathBuf {
    Path::new(dir).join("config-v3.toml.d")
}

/// Returns the paths of all files that a plan may change: the templates of both format versions,
/// and the drop-in.
pub(super) fn writable_paths(dir: &str) -> [PathBuf; 3] {
    [
        template_path(dir, &SCHEMA_V2),
        template_path(dir, &SCHEMA_V3),
        drop_in_path(dir),
    ]
}

/// Returns the path and the text of the drop-in or template that an installation writes.
pub(super) fn plan_files(dir: &str, inputs: &PlanInputs<'_>) -> Result<(PathBuf, String), Error> {
    let snapshot = inputs.snapshot;
    let generated_path = generated_config_path(dir);
    // Before the first start there is no generated file. If a template exists, its name then shows
    // the version of the configuration format.
    let has_only_old_template = snapshot.get_text(&template_path(dir, &SCHEMA_V2)).is_some()
        && snapshot.get_text(&template_path(dir, &SCHEMA_V3)).is_none();
    let default_schema = if has_only_old_template {
        &SCHEMA_V2
    } else {
        &SCHEMA_V3
    };
    let schema = schema::detect_schema(snapshot, &generated_path)?.unwrap_or(default_schema);
    let imports_drop_in = match snapshot.get_text(&generated_path) {
        Some(text) => documents::imports_file(&generated_path, text, &drop_in_path(dir))?,
        None => false,
    };
    let config_paths = documents::list_files_in_load_order(snapshot, &generated_path)?;
    handler::refuse_existing_handlers(schema, &config_paths, inputs)?;
    if schema.merges_imports() && imports_drop_in {
        return build_drop_in(&drop_in_dir(dir), schema, &config_paths, inputs);
    }
    let path = template_path(dir, schema);
    let text = snapshot.get_text(&path);
    for name in inputs.options.names() {
        refuse_existing_handler(&path, text.unwrap_or_default(), name)?;
    }
    if inputs.options.set_default {
        let problem = format!(
            "a template cannot name the default runtime a second time; start the distribution with \
             --default-runtime={RUNTIME_HANDLER_NAME} instead"
        );
        return Err(Error::new_at_line(&path, 1, problem));
    }
    let mut handler = Handler::new(schema, &[], inputs)?;
    handler.set_cgroup_driver("{{ .SystemdCgroup }}");
    let text = match text {
        Some(text) => append_block(text, &handler.format_tables()),
        None => format_managed_file(&format!(
            "{{{{ template \"base\" . }}}}\n\n{}",
            handler.format_tables()
        )),
    };
    Ok((path, text))
}

/// Returns an error if a template already defines a handler with this name. A Go template cannot be
/// parsed as TOML, so the text is searched for the header of the handler's table. The name in the
/// header may be in quotes.
fn refuse_existing_handler(path: &Path, text: &str, name: &str) -> Result<(), Error> {
    const TABLE_PREFIX: &str = ".runtimes.";
    let mut prefix_offsets = text.match_indices(TABLE_PREFIX).map(|(offset, _)| offset);
    let is_handler_header = |offset: &usize| {
        let table_header = &text[offset + TABLE_PREFIX.len()..];
        let text_after_name = table_header
            .trim_start_matches(['"', '\''])
            .strip_prefix(name);
        let next_char = text_after_name.and_then(|text_after_name| text_after_name.chars().next());
        text_after_name.is_some()
            && next_char.is_none_or(|c| !c.is_ascii_alphanumeric() && !"-_".contains(c))
    };
    match prefix_offsets.find(is_handler_header) {
        None => Ok(()),
        Some(offset) => Err(Error::new_name_conflict(
            path,
            find_line_number(text, offset),
            name,
        )),
    }
}
