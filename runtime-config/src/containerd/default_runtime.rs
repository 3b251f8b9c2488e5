//! Finds containerd's default runtime: the handler of pods without a RuntimeClass, and of
//! containers outside pods.

use std::path::{Path, PathBuf};

use toml_edit::{Item, TableLike, Value};

use super::handler::{Handlers, Keys, RUNC_V2, collect_handlers};
use super::schema::{self, Schema, V2, V3};
use super::{Layout, documents, own_drop_in, template};
use crate::default_runtime::{DefaultRuntime, refuse_later};
use crate::drop_in;
use crate::error::Error;
use crate::key_case;
use crate::snapshot::Snapshot;
use crate::toml_text::{item_at, line_of, parse};

/// The shims of runc in containerd 1.x. They have no option for the program that they call.
const OLD_RUNC: [&str; 2] = ["io.containerd.runc.v1", "io.containerd.runtime.v1.linux"];

/// The settings that decide what the default runtime is (containerd, docs/cri/config.md). The
/// first `*` stands for the name of a plugin.
const RUNTIME_SETTINGS: [&str; 8] = [
    "version",
    "imports",
    "plugins.*.containerd.default_runtime_name",
    "plugins.*.containerd.default_runtime.runtime_type",
    "plugins.*.containerd.runtimes.*.runtime_type",
    "plugins.*.containerd.runtimes.*.runtime_path",
    "plugins.*.containerd.runtimes.*.runtime_engine",
    "plugins.*.containerd.runtimes.*.options.BinaryName",
];

/// Returns the runtime that containerd's default handler calls.
///
/// # Errors
/// Fails if a file does not parse or has a key in another case. Also fails if a setting has
/// precedence over `default_runtime_name` or over Boathook's drop-in.
pub(crate) fn default_runtime(layout: &Layout, base: &Snapshot) -> Result<DefaultRuntime, Error> {
    let (schema, config_files) = find_config_files(layout, base)?;
    for path in &config_files {
        refuse_precedence(layout, schema, base, path)?;
    }
    // k0s merges configuration files of every version itself.
    let is_merged = schema.merges_imports() || matches!(layout, Layout::DropIns { .. });
    let Handlers { default, all } = collect_handlers(schema, &config_files, base, is_merged)?;
    let handler = all.into_iter().find(|(name, ..)| *name == default);
    Ok(match handler {
        Some((name, keys, options)) => runtime_of_handler(&name, &keys, &options),
        None if default == "runc" => DefaultRuntime::runc(),
        None => DefaultRuntime::new_other(&default, "a handler that no file describes"),
    })
}

/// Returns the runtime that a handler calls. Only a handler with a shim of runc calls a program
/// that `boathook-runtime` can call, too.
fn runtime_of_handler(name: &str, keys: &Keys, options: &Keys) -> DefaultRuntime {
    let value = |keys: &Keys, key: &str| -> String {
        let found = keys.iter().find(|(k, _)| k == key);
        let parsed = found.and_then(|(_, text)| text.parse::<Value>().ok());
        let text = parsed.as_ref().and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let shim = value(keys, "runtime_type");
    let program = value(options, "BinaryName");
    let has = |key: &str| !value(keys, key).is_empty();
    if has("runtime_path") || has("runtime_engine") {
        return DefaultRuntime::new_other(name, "a shim of its own");
    }
    // The handler `runc` has a built-in type in containerd if no file sets one.
    let is_runc_v2 = shim == RUNC_V2 || shim.is_empty() && name == "runc";
    match program.as_str() {
        "" if is_runc_v2 || OLD_RUNC.contains(&&*shim) => DefaultRuntime::program(name, "runc"),
        program if is_runc_v2 => DefaultRuntime::program(name, program),
        _ => DefaultRuntime::new_other(name, format!("runtime_type {shim}")),
    }
}

/// Returns the schema of the configuration, and its files in load order.
fn find_config_files(
    layout: &Layout,
    base: &Snapshot,
) -> Result<(&'static Schema, Vec<PathBuf>), Error> {
    match layout {
        Layout::File { main, conf_d } => {
            let main = Path::new(main);
            if base.text(main).is_some() {
                let schema = schema::detect_schema(base, main)?.unwrap_or(&V2);
                return Ok((schema, documents::in_load_order(base, main)?));
            }
            // Newer releases read the drop-ins without a main file.
            let drop_ins = conf_d.map(|dir| drop_in::in_order(base, &[], dir));
            Ok((&V3, drop_ins.unwrap_or_default()))
        }
        Layout::Template { dir } => {
            let main = template::generated_path(dir);
            let schema = schema::detect_schema(base, &main)?.unwrap_or(&V3);
            Ok((schema, documents::in_load_order(base, &main)?))
        }
        Layout::DropIns { dir, generated } => {
            let mut config_files = Vec::new();
            for main in generated {
                config_files.extend(documents::in_load_order(base, Path::new(main))?);
            }
            for path in drop_in::in_order(base, &[], dir) {
                if !config_files.contains(&path) {
                    config_files.push(path);
                }
            }
            let schema = schema::detect_schema(base, Path::new(generated[0]))?.unwrap_or(&V2);
            Ok((schema, config_files))
        }
    }
}

/// Returns an error if a setting would have precedence over Boathook's default runtime.
fn refuse_precedence(
    layout: &Layout,
    schema: &Schema,
    base: &Snapshot,
    path: &Path,
) -> Result<(), Error> {
    let text = base.text(path).unwrap_or_default();
    let doc = parse(path, text)?;
    key_case::check_toml(path, text, &doc, &RUNTIME_SETTINGS)?;
    let Some(table) = item_at(&doc, &schema.table()).and_then(Item::as_table_like) else {
        return Ok(());
    };
    let line = |key: &str| {
        let key = table.get_key_value(key).and_then(|(key, _)| key.span());
        line_of(text, key.map_or(0, |span| span.start))
    };
    let old = table.get("default_runtime").and_then(Item::as_table_like);
    if old.is_some_and(names_a_shim) {
        let problem = "default_runtime has precedence over default_runtime_name: write it as a \
                       handler below runtimes and name that, or leave --set-default out";
        return Err(Error::new_at_line(path, line("default_runtime"), problem));
    }
    let dir = match layout {
        Layout::File { conf_d, .. } => conf_d.map(PathBuf::from),
        Layout::Template { dir } => Some(template::drop_in_dir(dir)),
        Layout::DropIns { dir, .. } => Some(PathBuf::from(dir)),
    };
    match dir {
        Some(dir) if table.contains_key("default_runtime_name") => {
            refuse_later(&own_drop_in(&dir), path, line("default_runtime_name"))
        }
        _ => Ok(()),
    }
}

/// Returns whether the table `default_runtime` names a shim. `containerd config default` prints
/// this table with an empty type, which has no effect.
fn names_a_shim(table: &dyn TableLike) -> bool {
    let shim = table.get("runtime_type").and_then(Item::as_str);
    shim.is_some_and(|shim| !shim.is_empty())
}
