//! Finds containerd's default runtime. This is the handler for pods without a RuntimeClass, and for
//! containers outside of pods.

use std::path::{Path, PathBuf};

use toml_edit::{Item, TableLike, Value};

use super::handler::{Handlers, KeyValues, RUNC_V2_SHIM, collect_handlers};
use super::schema::{self, SCHEMA_V2, SCHEMA_V3, Schema};
use super::{Layout, boathook_drop_in_path, documents, template};
use crate::default_runtime::{DefaultRuntime, refuse_overriding_setting};
use crate::drop_in;
use crate::error::Error;
use crate::key_case;
use crate::snapshot::Snapshot;
use crate::toml_text::{find_line_number, get_item, parse_document};

/// The shims of containerd 1.x that are older than `io.containerd.runc.v2`. A handler with one of
/// them counts as runc only if its options do not name another program (`BinaryName`).
const CONTAINERD_V1_RUNC_SHIMS: [&str; 2] =
    ["io.containerd.runc.v1", "io.containerd.runtime.v1.linux"];

/// The settings on which the default runtime depends (containerd, docs/cri/config.md). The first
/// `*` stands for the name of a plugin. A file with one of these keys in another case is refused.
const DEFAULT_RUNTIME_SETTINGS: [&str; 8] = [
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
/// Fails if a file does not parse, or has a key in another case than the documentation. Also fails
/// if a setting has precedence over `default_runtime_name` or over Boathook's drop-in.
pub(crate) fn find_default_runtime(
    layout: &Layout,
    snapshot: &Snapshot,
) -> Result<DefaultRuntime, Error> {
    let (schema, config_paths) = find_config_paths(layout, snapshot)?;
    for path in &config_paths {
        refuse_setting_with_precedence(layout, schema, snapshot, path)?;
    }
    // k0s merges the CRI sections of all files itself, also those of configuration version 2.
    let merges_sections = schema.merges_imports() || matches!(layout, Layout::DropIns { .. });
    let Handlers {
        default_name,
        handlers,
    } = collect_handlers(schema, &config_paths, snapshot, merges_sections)?;
    let handler = handlers
        .into_iter()
        .find(|(name, ..)| *name == default_name);
    Ok(match handler {
        Some((name, settings, options)) => get_handler_runtime(&name, &settings, &options),
        None if default_name == "runc" => DefaultRuntime::new_runc(),
        None => DefaultRuntime::new_unsupported(&default_name, "a handler that no file describes"),
    })
}

/// Returns the runtime that a handler calls. If the handler uses a shim of runc, this is the
/// program that the shim calls. Otherwise it is a runtime that `boathook-runtime` cannot call.
fn get_handler_runtime(name: &str, settings: &KeyValues, options: &KeyValues) -> DefaultRuntime {
    let get_string = |settings: &KeyValues, setting_key: &str| -> String {
        let setting = settings.iter().find(|(key, _)| key == setting_key);
        let value = setting.and_then(|(_, text)| text.parse::<Value>().ok());
        let string = value.as_ref().and_then(Value::as_str);
        string.unwrap_or_default().to_owned()
    };
    let shim = get_string(settings, "runtime_type");
    let program = get_string(options, "BinaryName");
    let has_setting = |key: &str| !get_string(settings, key).is_empty();
    if has_setting("runtime_path") || has_setting("runtime_engine") {
        return DefaultRuntime::new_unsupported(name, "a shim of its own");
    }
    // If no file sets the `runtime_type` of the handler `runc`, containerd uses a built-in value.
    let is_runc_v2 = shim == RUNC_V2_SHIM || shim.is_empty() && name == "runc";
    match program.as_str() {
        "" if is_runc_v2 || CONTAINERD_V1_RUNC_SHIMS.contains(&&*shim) => {
            DefaultRuntime::new_program(name, "runc")
        }
        program if is_runc_v2 => DefaultRuntime::new_program(name, program),
        _ => DefaultRuntime::new_unsupported(name, format!("runtime_type {shim}")),
    }
}

/// Returns the schema of containerd's configuration, and the configuration files in load order.
fn find_config_paths(
    layout: &Layout,
    snapshot: &Snapshot,
) -> Result<(&'static Schema, Vec<PathBuf>), Error> {
    match layout {
        Layout::File {
            main_path,
            conf_d_dir,
        } => {
            let main_path = Path::new(main_path);
            if snapshot.get_text(main_path).is_some() {
                let schema = schema::detect_schema(snapshot, main_path)?.unwrap_or(&SCHEMA_V2);
                return Ok((
                    schema,
                    documents::list_files_in_load_order(snapshot, main_path)?,
                ));
            }
            // Newer releases of containerd read the drop-ins even without a main file.
            let drop_ins =
                conf_d_dir.map(|dir| drop_in::list_files_in_load_order(snapshot, &[], dir));
            Ok((&SCHEMA_V3, drop_ins.unwrap_or_default()))
        }
        Layout::Template { dir } => {
            let generated_path = template::generated_config_path(dir);
            let schema = schema::detect_schema(snapshot, &generated_path)?.unwrap_or(&SCHEMA_V3);
            let config_paths = documents::list_files_in_load_order(snapshot, &generated_path)?;
            Ok((schema, config_paths))
        }
        Layout::DropIns {
            dir,
            generated_paths,
        } => {
            let mut config_paths = Vec::new();
            for file in generated_paths {
                config_paths.extend(documents::list_files_in_load_order(
                    snapshot,
                    Path::new(file),
                )?);
            }
            for path in drop_in::list_files_in_load_order(snapshot, &[], dir) {
                if !config_paths.contains(&path) {
                    config_paths.push(path);
                }
            }
            let schema = schema::detect_schema(snapshot, Path::new(generated_paths[0]))?
                .unwrap_or(&SCHEMA_V2);
            Ok((schema, config_paths))
        }
    }
}

/// Returns an error if the file `path` has a setting that has precedence over the default runtime
/// in Boathook's file.
fn refuse_setting_with_precedence(
    layout: &Layout,
    schema: &Schema,
    snapshot: &Snapshot,
    path: &Path,
) -> Result<(), Error> {
    let text = snapshot.get_text(path).unwrap_or_default();
    let doc = parse_document(path, text)?;
    key_case::refuse_ambiguous_toml_keys(path, text, &doc, &DEFAULT_RUNTIME_SETTINGS)?;
    let Some(table) = get_item(&doc, &schema.handlers_table_path()).and_then(Item::as_table_like)
    else {
        return Ok(());
    };
    let find_key_line = |key: &str| {
        let key = table.get_key_value(key).and_then(|(key, _)| key.span());
        find_line_number(text, key.map_or(0, |span| span.start))
    };
    let default_runtime = table.get("default_runtime").and_then(Item::as_table_like);
    if default_runtime.is_some_and(sets_runtime_type) {
        let problem = "default_runtime has precedence over default_runtime_name: write it as a \
                       handler below runtimes and name that, or use --no-set-default";
        return Err(Error::new_at_line(
            path,
            find_key_line("default_runtime"),
            problem,
        ));
    }
    let drop_in_dir = match layout {
        Layout::File { conf_d_dir, .. } => conf_d_dir.map(PathBuf::from),
        Layout::Template { dir } => Some(template::drop_in_dir(dir)),
        Layout::DropIns { dir, .. } => Some(PathBuf::from(dir)),
    };
    match drop_in_dir {
        Some(dir) if table.contains_key("default_runtime_name") => refuse_overriding_setting(
            &boathook_drop_in_path(&dir),
            path,
            find_key_line("default_runtime_name"),
        ),
        _ => Ok(()),
    }
}

/// Returns whether the table `default_runtime` names a shim. In the output of `containerd config
/// default`, the table has an empty `runtime_type`, which has no effect.
fn sets_runtime_type(table: &dyn TableLike) -> bool {
    let shim = table.get("runtime_type").and_then(Item::as_str);
    shim.is_some_and(|shim| !shim.is_empty())
}
