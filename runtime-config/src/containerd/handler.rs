//! The tables of the runtime handler `boathook`.
//!
//! The handler is a copy of the default handler with another program. It needs the same
//! settings, above all the cgroup driver: with another driver, containers would be put into
//! cgroups that the kubelet does not know.

use std::path::PathBuf;

use toml_edit::{Item, TableLike};

use super::PlanInputs;
use super::schema::Schema;
use crate::error::Error;
use crate::facts::{ANNOTATIONS, HANDLER};
use crate::oci_hook;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::toml_text::{item_at, line_of, parse, quote};

/// The shim whose option `BinaryName` sets the program of the runtime.
pub(super) const RUNC_V2: &str = "io.containerd.runc.v2";

/// The keys of a table with their values as TOML text, in the order of the file.
pub(super) type Keys = Vec<(String, String)>;

/// The runtime handler `boathook` with all its settings.
#[derive(Debug)]
pub(super) struct Handler {
    plugin: &'static str,
    /// The names of the handler. All of them have the same settings.
    names: Vec<String>,
    is_default: bool,
    /// Whether containerd's built-in handler `runc` must be written, too. containerd 1.x drops it as
    /// soon as a file names another handler.
    writes_runc: bool,
    /// The keys of the handler's own table.
    keys: Keys,
    /// The keys of the handler's table `options`.
    options: Keys,
}

impl Handler {
    /// Builds the handler for a configuration that consists of the files `config_files`, in load order.
    pub(super) fn new(
        schema: &Schema,
        config_files: &[PathBuf],
        inputs: &PlanInputs<'_>,
    ) -> Result<Self, Error> {
        let InheritedSettings {
            mut keys,
            mut options,
            built_in,
        } = find_inherited(schema, config_files, inputs.base)?;
        set_key(&mut keys, "runtime_type", quote(RUNC_V2));
        if inputs.options.base_spec.is_some() {
            set_key(
                &mut keys,
                "base_runtime_spec",
                quote(&inputs.spec_path.to_string_lossy()),
            );
        } else {
            set_key(
                &mut options,
                "BinaryName",
                quote(&inputs.options.runtime.to_string_lossy()),
            );
        }
        let annotations = keys.iter().find(|(k, _)| k == "container_annotations");
        let list = match annotations.and_then(|(_, v)| v.strip_prefix('[')) {
            Some(others) if others.trim() != "]" => format!("[{}, {others}", quote(ANNOTATIONS)),
            _ => format!("[{}]", quote(ANNOTATIONS)),
        };
        set_key(&mut keys, "container_annotations", list);
        Ok(Self {
            plugin: schema.plugin,
            names: inputs.options.names().map(str::to_owned).collect(),
            is_default: inputs.options.set_default,
            writes_runc: built_in && !schema.merges_handlers(),
            keys,
            options,
        })
    }

    /// Sets the cgroup driver to a template's expression. k3s and rke2 evaluate the expression
    /// when they generate containerd's file.
    pub(super) fn set_cgroup_driver(&mut self, expression: &str) {
        set_key(&mut self.options, "SystemdCgroup", expression.to_owned());
    }

    /// Returns the text of the handler's tables, for a block or a drop-in.
    pub(super) fn tables(&self) -> String {
        let tables: Vec<String> = self.names.iter().map(|name| self.table(name)).collect();
        tables.join("\n")
    }

    fn table(&self, name: &str) -> String {
        let table = format!("plugins.{}.containerd.runtimes.{name}", quote(self.plugin));
        let mut text = format!("[{table}]\n{}", format_lines(&self.keys));
        if !self.options.is_empty() {
            text += &format!("\n[{table}.options]\n{}", format_lines(&self.options));
        }
        text
    }

    /// Returns the table of containerd's built-in handler `runc`, or an empty text if it is not
    /// needed. In containerd 1.x a file with any handler must also name the built-in one.
    pub(super) fn runc_table(&self) -> String {
        if !self.writes_runc {
            return String::new();
        }
        let table = format!("plugins.{}.containerd.runtimes.runc", quote(self.plugin));
        format!("\n[{table}]\nruntime_type = {}\n", quote(RUNC_V2))
    }

    /// Returns the table that makes the handler the default, or an empty text without
    /// `--set-default`.
    pub(super) fn default_table(&self) -> String {
        if !self.is_default {
            return String::new();
        }
        let table = format!("plugins.{}.containerd", quote(self.plugin));
        format!("\n[{table}]\ndefault_runtime_name = {}\n", quote(HANDLER))
    }
}

/// The settings of the present default handler, which Boathook's handler inherits.
struct InheritedSettings {
    keys: Keys,
    options: Keys,
    /// Whether the default handler is containerd's built-in one, which no file names.
    built_in: bool,
}

/// The handlers that the configuration files define.
pub(super) struct Handlers {
    /// The name of the default handler, for pods without a RuntimeClass.
    pub(super) default: String,
    /// The name, the keys and the options of each handler.
    pub(super) all: Vec<(String, Keys, Keys)>,
}

/// Collects the handlers that the files `config_files` define. The files are in load order. With
/// `is_merged` the CRI section of a file extends the sections of earlier files, and without it
/// the section replaces them.
pub(super) fn collect_handlers(
    schema: &Schema,
    config_files: &[PathBuf],
    base: &Snapshot,
    is_merged: bool,
) -> Result<Handlers, Error> {
    let mut default = "runc".to_owned();
    let mut handlers: Vec<(String, Keys, Keys)> = Vec::new();
    for path in config_files {
        let doc = parse(path, base.text(path).unwrap_or_default())?.into_mut();
        let section = doc.get("plugins").and_then(|p| p.get(schema.plugin));
        if section.is_some() && !is_merged {
            handlers.clear();
            "runc".clone_into(&mut default);
        }
        let Some(section) = section.and_then(|s| s.get("containerd")) else {
            continue;
        };
        let name = section.get("default_runtime_name").and_then(Item::as_str);
        // A merged file may contain Boathook's handler from an earlier installation.
        if let Some(name) = name.filter(|name| *name != HANDLER) {
            name.clone_into(&mut default);
        }
        let runtimes = section
            .get("runtimes")
            .and_then(Item::as_table_like)
            .into_iter()
            .flat_map(TableLike::iter);
        for (name, item) in runtimes.filter(|(name, _)| *name != HANDLER) {
            let index = handlers
                .iter()
                .position(|h| h.0 == name)
                .unwrap_or_else(|| {
                    handlers.push((name.to_owned(), Keys::new(), Keys::new()));
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
        default,
        all: handlers,
    })
}

/// Finds the handler whose settings Boathook's handler inherits: the default handler or, if that
/// one uses another shim than runc's, the handler `runc`.
fn find_inherited(
    schema: &Schema,
    config_files: &[PathBuf],
    base: &Snapshot,
) -> Result<InheritedSettings, Error> {
    let Handlers {
        default,
        all: mut handlers,
    } = collect_handlers(schema, config_files, base, schema.merges_imports())?;
    let runc = quote(RUNC_V2);
    let uses_runc = |keys: &Keys| keys.iter().all(|(k, v)| k != "runtime_type" || *v == runc);
    let chosen = [default.as_str(), "runc"].into_iter().find_map(|name| {
        handlers
            .iter()
            .position(|(n, keys, _)| n == name && uses_runc(keys))
    });
    let built_in = default == "runc" && handlers.iter().all(|(name, ..)| name != "runc");
    let (_, keys, options) = chosen
        .map(|index| handlers.swap_remove(index))
        .unwrap_or_default();
    Ok(InheritedSettings {
        keys,
        options,
        built_in,
    })
}

/// Fails if a file already defines a handler with one of Boathook's names, because containerd would
/// merge that handler with the new one. In a file that the engine generates, Boathook's own handler
/// of an earlier installation is accepted.
pub(super) fn refuse_existing_handlers(
    schema: &Schema,
    config_files: &[PathBuf],
    inputs: &PlanInputs<'_>,
) -> Result<(), Error> {
    for path in config_files {
        let text = inputs.base.text(path).unwrap_or_default();
        let doc = parse(path, text)?;
        let handlers = item_at(&doc, &schema.table())
            .and_then(|handlers| handlers.get("runtimes")?.as_table_like());
        for name in inputs.options.names() {
            let existing = handlers.and_then(|handlers| handlers.get_key_value(name));
            let Some((key, handler)) = existing else {
                continue;
            };
            if inputs.base.is_generated(path) && is_own(handler, inputs) {
                continue;
            }
            let line = line_of(text, key.span().map_or(0, |span| span.start));
            return Err(Error::name_taken(path, line, name));
        }
    }
    Ok(())
}

/// Returns whether a handler calls Boathook, by its program or by its OCI specification.
fn is_own(handler: &Item, inputs: &PlanInputs<'_>) -> bool {
    let text = |item: Option<&Item>| item.and_then(Item::as_str).map(PathBuf::from);
    let options = handler.get("options");
    let program = text(options.and_then(|options| options.get("BinaryName")));
    let spec = text(handler.get("base_runtime_spec"));
    program.is_some_and(|program| program.file_name() == inputs.options.runtime.file_name())
        || spec.is_some_and(|spec| spec == inputs.spec_path)
}

/// Copies the values of a table to `keys`, and replaces the values of keys that are there already.
/// Nested tables are skipped. The only one that is needed is `options`, which the caller copies by
/// another call.
fn merge_table(keys: &mut Keys, table: Option<&dyn TableLike>) {
    for (key, item) in table.into_iter().flat_map(TableLike::iter) {
        let Some(value) = item.as_value().filter(|v| !v.is_inline_table()) else {
            continue;
        };
        // Strings are always quoted in the same way, whatever quotes the file uses.
        let text = match value.as_str() {
            Some(string) => quote(string),
            None => value.clone().decorated("", "").to_string(),
        };
        set_key(keys, key, text);
    }
}

fn set_key(keys: &mut Keys, key: &str, value: String) {
    match keys.iter_mut().find(|(k, _)| k == key) {
        Some(slot) => slot.1 = value,
        None => keys.push((key.to_owned(), value)),
    }
}

fn format_lines(keys: &Keys) -> String {
    keys.iter()
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect()
}

/// Returns the base OCI specification `spec` with the hook added.
pub(super) fn add_hook_to_spec(spec: &str, options: &Options) -> Result<String, Error> {
    let fail = |message: &str| {
        let advice = "make one with \"ctr oci spec\"";
        Error::Other(format!(
            "the base OCI spec is not usable: {message}; {advice}"
        ))
    };
    let mut spec: serde_json::Value =
        serde_json::from_str(spec).map_err(|e| fail(&e.to_string()))?;
    if spec.get("ociVersion").is_none() {
        return Err(fail("it has no ociVersion"));
    }
    let hooks = &mut spec["hooks"];
    if hooks.is_null() {
        *hooks = serde_json::json!({});
    }
    let hooks = hooks
        .as_object_mut()
        .ok_or_else(|| fail("its hooks are no object"))?;
    let prestart = hooks
        .entry("prestart")
        .or_insert_with(|| serde_json::json!([]));
    let list = prestart
        .as_array_mut()
        .ok_or_else(|| fail("hooks.prestart is no list"))?;
    list.push(oci_hook::hook_entry(options));
    Ok(format!("{spec:#}\n"))
}
