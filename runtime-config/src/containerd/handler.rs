//! The tables of the runtime handler `boathook`.
//!
//! The handler is a copy of containerd's default handler, but calls another program. It needs the
//! same settings as the default handler, above all the same cgroup driver. With another driver,
//! containers would be put into cgroups that the kubelet does not manage.

use std::path::PathBuf;

use toml_edit::{Item, TableLike};

use super::PlanInputs;
use super::schema::Schema;
use crate::engine_properties::{ANNOTATION_PATTERN, RUNTIME_HANDLER_NAME};
use crate::error::Error;
use crate::oci_hook;
use crate::options::InstallOptions;
use crate::snapshot::Snapshot;
use crate::toml_text::{find_line_number, get_item, parse_document, quote};

/// The containerd shim that calls an OCI runtime: runc, or the program in its option `BinaryName`.
pub(super) const RUNC_V2_SHIM: &str = "io.containerd.runc.v2";

/// The keys and values of a table, in the order of the file. Each value is a TOML text.
pub(super) type KeyValues = Vec<(String, String)>;

/// The runtime handler `boathook` and all its settings.
#[derive(Debug)]
pub(super) struct Handler {
    plugin_id: &'static str,
    /// The names of the handler. The handler has the same settings under each name.
    names: Vec<String>,
    is_default: bool,
    /// Whether the table of containerd's built-in handler `runc` must be written as well.
    /// containerd 1.x drops the built-in handler as soon as a file defines another handler.
    needs_runc_table: bool,
    /// The settings in the handler's own table, such as `runtime_type`.
    settings: KeyValues,
    /// The settings in the table `options` of the handler, such as `BinaryName` and
    /// `SystemdCgroup`.
    options: KeyValues,
}

impl Handler {
    /// Returns the handler for a configuration with the files `config_paths`, which are in load
    /// order.
    pub(super) fn new(
        schema: &Schema,
        config_paths: &[PathBuf],
        inputs: &PlanInputs<'_>,
    ) -> Result<Self, Error> {
        let InheritedSettings {
            mut settings,
            mut options,
            is_default_built_in,
        } = find_inherited_settings(schema, config_paths, inputs.snapshot)?;
        set_key(&mut settings, "runtime_type", quote(RUNC_V2_SHIM));
        if inputs.options.base_spec.is_some() {
            set_key(
                &mut settings,
                "base_runtime_spec",
                quote(&inputs.base_spec_path.to_string_lossy()),
            );
        } else {
            set_key(
                &mut options,
                "BinaryName",
                quote(&inputs.options.runtime_path.to_string_lossy()),
            );
        }
        let inherited_list = settings
            .iter()
            .find(|(key, _)| key == "container_annotations");
        let annotations = match inherited_list.and_then(|(_, list)| list.strip_prefix('[')) {
            Some(list) if list.trim() != "]" => format!("[{}, {list}", quote(ANNOTATION_PATTERN)),
            _ => format!("[{}]", quote(ANNOTATION_PATTERN)),
        };
        set_key(&mut settings, "container_annotations", annotations);
        Ok(Self {
            plugin_id: schema.plugin_id,
            names: inputs.options.names().map(str::to_owned).collect(),
            is_default: inputs.options.set_default,
            needs_runc_table: is_default_built_in && !schema.merges_handlers(),
            settings,
            options,
        })
    }

    /// Sets the cgroup driver to a template expression. k3s and rke2 evaluate this expression when
    /// they generate containerd's file.
    pub(super) fn set_cgroup_driver(&mut self, expression: &str) {
        set_key(&mut self.options, "SystemdCgroup", expression.to_owned());
    }

    /// Returns the text of the handler's tables. The caller writes it to a block of a file, or to a
    /// drop-in.
    pub(super) fn format_tables(&self) -> String {
        let tables: Vec<String> = self
            .names
            .iter()
            .map(|name| self.format_table(name))
            .collect();
        tables.join("\n")
    }

    fn format_table(&self, name: &str) -> String {
        let table = format!(
            "plugins.{}.containerd.runtimes.{name}",
            quote(self.plugin_id)
        );
        let mut text = format!("[{table}]\n{}", format_lines(&self.settings));
        if !self.options.is_empty() {
            text += &format!("\n[{table}.options]\n{}", format_lines(&self.options));
        }
        text
    }

    /// Returns the text of the table of containerd's built-in handler `runc`, or an empty text if
    /// the table is not needed. In containerd 1.x, a file that defines any handler must also define
    /// the built-in one.
    pub(super) fn format_runc_table(&self) -> String {
        if !self.needs_runc_table {
            return String::new();
        }
        let table = format!("plugins.{}.containerd.runtimes.runc", quote(self.plugin_id));
        format!("\n[{table}]\nruntime_type = {}\n", quote(RUNC_V2_SHIM))
    }

    /// Returns the text of the table that makes the handler the default. Without `--set-default`
    /// the text is empty.
    pub(super) fn format_default_table(&self) -> String {
        if !self.is_default {
            return String::new();
        }
        let table = format!("plugins.{}.containerd", quote(self.plugin_id));
        format!(
            "\n[{table}]\ndefault_runtime_name = {}\n",
            quote(RUNTIME_HANDLER_NAME)
        )
    }
}

/// The settings of the current default handler. Boathook's handler inherits them.
struct InheritedSettings {
    settings: KeyValues,
    options: KeyValues,
    /// Whether the default handler is built into containerd, so that no configuration file defines
    /// it.
    is_default_built_in: bool,
}

pub(super) struct Handlers {
    /// The name of the default handler. Pods without a RuntimeClass use it.
    pub(super) default_name: String,
    /// The name, the settings and the options of each handler.
    pub(super) handlers: Vec<(String, KeyValues, KeyValues)>,
}

/// Collects the handlers that the files `config_paths` define. The files are in load order. If
/// `merges_sections` is set, the CRI section of a file extends the sections of earlier files.
/// Otherwise the section replaces them.
pub(super) fn collect_handlers(
    schema: &Schema,
    config_paths: &[PathBuf],
    snapshot: &Snapshot,
    merges_sections: bool,
) -> Result<Handlers, Error> {
    let mut default_name = "runc".to_owned();
    let mut handlers: Vec<(String, KeyValues, KeyValues)> = Vec::new();
    for path in config_paths {
        let doc = parse_document(path, snapshot.get_text(path).unwrap_or_default())?.into_mut();
        let section = doc
            .get("plugins")
            .and_then(|plugins| plugins.get(schema.plugin_id));
        if section.is_some() && !merges_sections {
            handlers.clear();
            "runc".clone_into(&mut default_name);
        }
        let Some(section) = section.and_then(|section| section.get("containerd")) else {
            continue;
        };
        let name = section.get("default_runtime_name").and_then(Item::as_str);
        // Boathook's handler of an earlier installation is skipped, because the new handler must
        // not inherit the settings of the earlier one.
        if let Some(name) = name.filter(|name| *name != RUNTIME_HANDLER_NAME) {
            name.clone_into(&mut default_name);
        }
        let runtimes = section
            .get("runtimes")
            .and_then(Item::as_table_like)
            .into_iter()
            .flat_map(TableLike::iter);
        for (name, item) in runtimes.filter(|(name, _)| *name != RUNTIME_HANDLER_NAME) {
            let index = handlers
                .iter()
                .position(|handler| handler.0 == name)
                .unwrap_or_else(|| {
                    handlers.push((name.to_owned(), KeyValues::new(), KeyValues::new()));
                    handlers.len() - 1
                });
            merge_table(&mut handlers[index].1, item.as_table_like());
            merge_table(
                &mut handlers[index].2,
                item.get("options").and_then(Item::as_table_like),
            );
        }
    }
    Ok(Handlers {
        default_name,
        handlers,
    })
}

/// Returns the settings that Boathook's handler inherits. They are those of the default handler. If
/// the default handler does not use the shim of runc, they are those of the handler `runc`.
fn find_inherited_settings(
    schema: &Schema,
    config_paths: &[PathBuf],
    snapshot: &Snapshot,
) -> Result<InheritedSettings, Error> {
    let Handlers {
        default_name,
        mut handlers,
    } = collect_handlers(schema, config_paths, snapshot, schema.merges_imports())?;
    let runc_shim = quote(RUNC_V2_SHIM);
    let uses_runc_shim = |settings: &KeyValues| {
        settings
            .iter()
            .all(|(key, value)| key != "runtime_type" || *value == runc_shim)
    };
    let index = [default_name.as_str(), "runc"]
        .into_iter()
        .find_map(|wanted_name| {
            handlers
                .iter()
                .position(|(name, settings, _)| name == wanted_name && uses_runc_shim(settings))
        });
    let is_default_built_in =
        default_name == "runc" && handlers.iter().all(|(name, ..)| name != "runc");
    let (_, settings, options) = index
        .map(|index| handlers.swap_remove(index))
        .unwrap_or_default();
    Ok(InheritedSettings {
        settings,
        options,
        is_default_built_in,
    })
}

/// Returns an error if a file defines a handler with one of Boathook's names, because containerd
/// would merge that handler with the new one. In a generated file, Boathook's handler of an earlier
/// installation is accepted.
pub(super) fn refuse_existing_handlers(
    schema: &Schema,
    config_paths: &[PathBuf],
    inputs: &PlanInputs<'_>,
) -> Result<(), Error> {
    for path in config_paths {
        let text = inputs.snapshot.get_text(path).unwrap_or_default();
        let doc = parse_document(path, text)?;
        let handlers = get_item(&doc, &schema.handlers_table_path())
            .and_then(|handlers| handlers.get("runtimes")?.as_table_like());
        for name in inputs.options.names() {
            let existing_handler = handlers.and_then(|handlers| handlers.get_key_value(name));
            let Some((key, handler)) = existing_handler else {
                continue;
            };
            if inputs.snapshot.is_generated(path) && is_boathook_handler(handler, inputs) {
                continue;
            }
            let line = find_line_number(text, key.span().map_or(0, |span| span.start));
            return Err(Error::new_name_conflict(path, line, name));
        }
    }
    Ok(())
}

/// Returns whether a handler was written by an installation. It was if its program is
/// `boathook-runtime`, or if its base OCI specification is the one with the hook.
fn is_boathook_handler(handler: &Item, inputs: &PlanInputs<'_>) -> bool {
    let get_path = |item: Option<&Item>| item.and_then(Item::as_str).map(PathBuf::from);
    let options = handler.get("options");
    let program = get_path(options.and_then(|options| options.get("BinaryName")));
    let spec = get_path(handler.get("base_runtime_spec"));
    program.is_some_and(|program| program.file_name() == inputs.options.runtime_path.file_name())
        || spec.is_some_and(|spec| spec == inputs.base_spec_path)
}

/// Copies the keys and values of a table to `settings`, and replaces the values of existing keys.
/// Nested tables are skipped. Of these, only `options` is needed, and the caller copies it with a
/// separate call.
fn merge_table(settings: &mut KeyValues, table: Option<&dyn TableLike>) {
    for (key, item) in table.into_iter().flat_map(TableLike::iter) {
        let Some(value) = item.as_value().filter(|value| !value.is_inline_table()) else {
            continue;
        };
        // All strings get the same kind of quotes, whatever quotes the file has, so that equal
        // values are equal texts.
        let text = match value.as_str() {
            Some(string) => quote(string),
            None => value.clone().decorated("", "").to_string(),
        };
        set_key(settings, key, text);
    }
}

fn set_key(settings: &mut KeyValues, key: &str, value: String) {
    match settings.iter_mut().find(|setting| setting.0 == key) {
        Some(setting) => setting.1 = value,
        None => settings.push((key.to_owned(), value)),
    }
}

fn format_lines(settings: &KeyValues) -> String {
    settings
        .iter()
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect()
}

/// Returns the base OCI specification `spec`, with Boathook's hook added to its `prestart` hooks.
pub(super) fn add_hook_to_spec(spec: &str, options: &InstallOptions) -> Result<String, Error> {
    let new_error = |message: &str| {
        let advice = "make one with \"ctr oci spec\"";
        Error::Other(format!(
            "the base OCI spec is not usable: {message}; {advice}"
        ))
    };
    let mut spec: serde_json::Value =
        serde_json::from_str(spec).map_err(|error| new_error(&error.to_string()))?;
    if spec.get("ociVersion").is_none() {
        return Err(new_error("it has no ociVersion"));
    }
    let hooks_value = &mut spec["hooks"];
    if hooks_value.is_null() {
        *hooks_value = serde_json::json!({});
    }
    let hooks = hooks_value
        .as_object_mut()
        .ok_or_else(|| new_error("its hooks are no object"))?;
    let prestart = hooks
        .entry("prestart")
        .or_insert_with(|| serde_json::json!([]));
    let prestart_hooks = prestart
        .as_array_mut()
        .ok_or_else(|| new_error("hooks.prestart is no list"))?;
    prestart_hooks.push(oci_hook::build_hook_entry(options));
    Ok(format!("{spec:#}\n"))
}
