//! Plans the files of k3s and rke2, which generate containerd's file at each start. They use a
//! Go template, or their built-in template "base" if there is none (k3s documentation,
//! "Configuring containerd").

use std::path::{Path, PathBuf};

use super::handler::{self, Handler};
use super::schema::{Schema, V2, V3};
use super::{PlanInputs, documents, drop_in, own_drop_in, schema};
use crate::error::Error;
use crate::facts::HANDLER;
use crate::toml_text::{append_block, line_of, whole_file};

/// Returns the path of the file that is generated at each start. Its text shows which version of
/// the configuration is in use.
pub(super) fn generated_path(dir: &str) -> PathBuf {
    Path::new(dir).join("config.toml")
}

fn template_path(dir: &str, schema: &Schema) -> PathBuf {
    let name = if *schema == V3 {
        "config-v3.toml.tmpl"
    } else {
        "config.toml.tmpl"
    };
    Path::new(dir).join(name)
}

/// Returns the path of Boathook's drop-in. The generated file imports drop-ins from the releases
/// of 2025 on.
fn drop_in_path(dir: &str) -> PathBuf {
    own_drop_in(&drop_in_dir(dir))
}

pub(super) fn drop_in_dir(dir: &str) -> PathBuf {
    Path::new(dir).join("config-v3.toml.d")
}

/// Returns the paths of all files that a plan may write.
pub(super) fn writable_paths(dir: &str) -> [PathBuf; 3] {
    [
        template_path(dir, &V2),
        template_path(dir, &V3),
        drop_in_path(dir),
    ]
}

pub(super) fn plan_files(dir: &str, inputs: &PlanInputs<'_>) -> Result<(PathBuf, String), Error> {
    let base = inputs.base;
    let main = generated_path(dir);
    // Before the first start there is no generated file. Then the name of an existing template shows
    // the version of the configuration.
    let has_only_old_template = base.text(&template_path(dir, &V2)).is_some()
        && base.text(&template_path(dir, &V3)).is_none();
    let default_schema = if has_only_old_template { &V2 } else { &V3 };
    let schema = schema::detect_schema(base, &main)?.unwrap_or(default_schema);
    let imports_drop_in = match base.text(&main) {
        Some(text) => documents::imports(&main, text, &drop_in_path(dir))?,
        None => false,
    };
    let config_files = documents::in_load_order(base, &main)?;
    handler::refuse_existing_handlers(schema, &config_files, inputs)?;
    if schema.merges_imports() && imports_drop_in {
        return drop_in(&drop_in_dir(dir), schema, &config_files, inputs);
    }
    let path = template_path(dir, schema);
    let text = base.text(&path);
    for name in inputs.options.names() {
        refuse_existing_handler(&path, text.unwrap_or_default(), name)?;
    }
    if inputs.options.set_default {
        let problem = format!(
            "a template cannot name the default runtime a second time; start the distribution with \
             --default-runtime={HANDLER} instead"
        );
        return Err(Error::new_at_line(&path, 1, problem));
    }
    let mut handler = Handler::new(schema, &[], inputs)?;
    handler.set_cgroup_driver("{{ .SystemdCgroup }}");
    let text = match text {
        Some(text) => append_block(text, &handler.tables()),
        None => whole_file(&format!(
            "{{{{ template \"base\" . }}}}\n\n{}",
            handler.tables()
        )),
    };
    Ok((path, text))
}

/// Refuses a template that already defines a handler with this name. A Go template cannot be parsed
/// as TOML, so the header of the handler's table is searched in the text. The name may be in quotes.
fn refuse_existing_handler(path: &Path, text: &str, name: &str) -> Result<(), Error> {
    const TABLES: &str = ".runtimes.";
    let mut tables = text.match_indices(TABLES).map(|(start, _)| start);
    let is_name = |start: &usize| {
        let table = &text[start + TABLES.len()..];
        let rest = table.trim_start_matches(['"', '\'']).strip_prefix(name);
        let next = rest.and_then(|rest| rest.chars().next());
        rest.is_some() && next.is_none_or(|c| !c.is_ascii_alphanumeric() && !"-_".contains(c))
    };
    match tables.find(is_name) {
        None => Ok(()),
        Some(start) => Err(Error::name_taken(path, line_of(text, start), name)),
    }
}
