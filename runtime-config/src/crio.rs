//! Configures CRI-O with two files. The first one is a hook in a hooks directory, which CRI-O runs
//! for every container. The second one is a drop-in with the runtime handler that a RuntimeClass
//! can name.
//!
//! Both files are below `/etc/crio`. CRI-O's default hooks directory is below `/usr`, which may be
//! read-only, and `/etc/containers` belongs to podman.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use toml_edit::{Item, Table};

use crate::daemon_options::{Daemon, DaemonOption};
use crate::default_runtime::{DefaultRuntime, refuse_overriding_setting};
use crate::drop_in::{self, DROP_IN_HEADER};
use crate::engine_properties::RUNTIME_HANDLER_NAME;
use crate::error::Error;
use crate::host::HostRoot;
use crate::key_case;
use crate::oci_hook;
use crate::options::InstallOptions;
use crate::snapshot::Snapshot;
use crate::toml_text::{self, find_line_number, get_item, parse_document, quote};

const MAIN_FILE_PATH: &str = "/etc/crio/crio.conf";
const CONF_D_DIR: &str = "/etc/crio/crio.conf.d";
const DROP_IN_PATH: &str = "/etc/crio/crio.conf.d/99-boathook.conf";
const HOOKS_D_DIR: &str = "/etc/crio/hooks.d";

/// The directory in which `boathook-runtime` keeps the state of its containers (`runtime_root`).
const RUNTIME_STATE_DIR: &str = "/run/boathook";

const DAEMON: Daemon = Daemon {
    program_name: "crio",
    unit_name: "crio.service",
    init_script_path: "/etc/init.d/crio",
    variable_file_paths: &["/etc/default/crio", "/etc/sysconfig/crio"],
    config_option_names: &["--config", "-c"],
    config_path: MAIN_FILE_PATH,
};

const DEFAULT_RUNTIME_OPTION: &str = "--default-runtime";

/// The settings on which the default runtime depends (crio.conf(5)). A file with one of these keys
/// in another case is refused.
const DEFAULT_RUNTIME_SETTINGS: [&str; 3] = [
    "crio.runtime.default_runtime",
    "crio.runtime.runtimes.*.runtime_path",
    "crio.runtime.runtimes.*.runtime_type",
];

/// The values of `runtime_type` with which CRI-O calls a program that has the command line of an
/// OCI runtime. Any other value, such as `vm`, names a runtime that isolates containers
/// differently.
const OCI_RUNTIME_TYPES: [&str; 3] = ["", "oci", "pod"];

/// Reads into the snapshot all files on which a plan for CRI-O depends, and the daemon's option
/// `--default-runtime`.
pub(crate) fn read_config_files(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    snapshot.set_default_runtime_option(DAEMON.find_option(host, DEFAULT_RUNTIME_OPTION));
    snapshot.read(host, Path::new(MAIN_FILE_PATH))?;
    snapshot.read(host, Path::new(DROP_IN_PATH))?;
    snapshot.read(host, &Path::new(HOOKS_D_DIR).join(oci_hook::HOOK_FILE_NAME))?;
    drop_in::read_drop_ins(host, Path::new(CONF_D_DIR), "", snapshot)
}

/// Returns the paths and the texts of the two files that an installation writes: the hook's file,
/// and the drop-in with the handler.
pub(crate) fn plan_files(
    snapshot: &Snapshot,
    options: &InstallOptions,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let config_paths = drop_in::list_files_in_load_order(snapshot, &[MAIN_FILE_PATH], CONF_D_DIR);
    let mut text = format!("{DROP_IN_HEADER}[crio.runtime]\n");
    let table_path = ["crio", "runtime"];
    if let Some(line) = oci_hook::format_hooks_dir_line(
        snapshot,
        &config_paths,
        &table_path,
        Path::new(HOOKS_D_DIR),
    )? {
        text.push_str(&line);
    }
    if options.set_default {
        text += &format!("default_runtime = \"{RUNTIME_HANDLER_NAME}\"\n");
    }
    let inherited_settings = collect_inherited_settings(snapshot, &config_paths)?;
    for name in options.names() {
        toml_text::refuse_existing_runtime(
            snapshot,
            &config_paths,
            &["crio", "runtime", "runtimes"],
            name,
        )?;
        text += &format!("\n[crio.runtime.runtimes.{name}]\n");
        text += &format!(
            "runtime_path = {}\n",
            quote(&options.runtime_path.to_string_lossy())
        );
        text += &format!("runtime_type = \"oci\"\nruntime_root = \"{RUNTIME_STATE_DIR}\"\n");
        for (key, value) in &inherited_settings {
            // Writing to a string cannot fail, so the result is ignored.
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    let hook_file_path = Path::new(HOOKS_D_DIR).join(oci_hook::HOOK_FILE_NAME);
    Ok(vec![
        (hook_file_path, oci_hook::format_hook_file(options)),
        (DROP_IN_PATH.into(), text),
    ])
}

/// Returns the default runtime. CRI-O uses it for containers that name no runtime.
///
/// # Errors
/// Fails if a file does not parse, or has a key in another case than the documentation. Also fails
/// if a command-line option or a later file has precedence over the drop-in that Boathook writes,
/// because `--set-default` would then have no effect.
pub(crate) fn find_default_runtime(snapshot: &Snapshot) -> Result<DefaultRuntime, Error> {
    if let Some(DaemonOption { value, source }) = snapshot.default_runtime_option() {
        return Err(Error::Other(format!(
            "crio: {DEFAULT_RUNTIME_OPTION}={value} in {source} has precedence over {DROP_IN_PATH}: take the \
             option out and restart crio, or use --no-set-default"
        )));
    }
    let config_paths = drop_in::list_files_in_load_order(snapshot, &[MAIN_FILE_PATH], CONF_D_DIR);
    for path in &config_paths {
        let text = snapshot.get_text(path).unwrap_or_default();
        let doc = parse_document(path, text)?;
        key_case::refuse_ambiguous_toml_keys(path, text, &doc, &DEFAULT_RUNTIME_SETTINGS)?;
        let table = get_item(&doc, &["crio", "runtime"]).and_then(Item::as_table_like);
        if let Some((key, _)) = table.and_then(|table| table.get_key_value("default_runtime")) {
            let line = find_line_number(text, key.span().map_or(0, |span| span.start));
            refuse_overriding_setting(Path::new(DROP_IN_PATH), path, line)?;
        }
    }
    let (default_name, runtimes) = merge_runtimes(snapshot, &config_paths)?;
    let get_table = |name: &str| runtimes.get(name).and_then(Item::as_table_like);
    // If no file sets `default_runtime`, CRI-O uses crun or runc. Its version decides which one.
    let default_runtime = match &default_name {
        Some(name) => Some((name.as_str(), get_table(name))),
        None => ["crun", "runc"]
            .into_iter()
            .find_map(|name| Some((name, Some(get_table(name)?)))),
    };
    let Some((name, table)) = default_runtime else {
        return Ok(DefaultRuntime::new_runc());
    };
    let get_string = |key: &str| {
        let value = table.and_then(|table| table.get(key)?.as_str());
        value.unwrap_or_default().to_owned()
    };
    let (program, runtime_type) = (get_string("runtime_path"), get_string("runtime_type"));
    Ok(match program.as_str() {
        _ if !OCI_RUNTIME_TYPES.contains(&runtime_type.as_str()) => {
            DefaultRuntime::new_unsupported(name, format!("runtime_type {runtime_type}"))
        }
        "" => DefaultRuntime::new_program(name, name),
        program => DefaultRuntime::new_program(name, program),
    })
}

/// Merges the configuration files in load order. Returns the name of the default runtime, if a file
/// sets one, and the table of each runtime by the name of the runtime.
fn merge_runtimes(
    snapshot: &Snapshot,
    config_paths: &[PathBuf],
) -> Result<(Option<String>, Table), Error> {
    let mut default_name = None;
    let mut merged_tables = Table::new();
    for path in config_paths {
        let doc = parse_document(path, snapshot.get_text(path).unwrap_or_default())?.into_mut();
        let runtime = doc.get("crio").and_then(|table| table.get("runtime"));
        let name = runtime
            .and_then(|table| table.get("default_runtime"))
            .and_then(Item::as_str);
        default_name = name.map(str::to_owned).or(default_name);
        let runtimes = runtime
            .and_then(|table| table.get("runtimes"))
            .and_then(Item::as_table_like);
        for (name, table) in runtimes.into_iter().flat_map(|table| table.iter()) {
            merged_tables.insert(name, table.clone());
        }
    }
    Ok((default_name, merged_tables))
}

/// Returns the settings that Boathook's handler inherits from the default runtime, such as the path
/// of the monitor (conmon). A distribution may have set these to paths of its own, and containers
/// of Boathook's handler need the same settings.
fn collect_inherited_settings(
    snapshot: &Snapshot,
    config_paths: &[PathBuf],
) -> Result<Vec<(String, String)>, Error> {
    let (default_name, tables) = merge_runtimes(snapshot, config_paths)?;
    // If no file sets `default_runtime`, CRI-O uses crun (1.31 and later) or runc.
    let candidate_names = [default_name.as_deref().unwrap_or("crun"), "crun", "runc"];
    let table = candidate_names
        .iter()
        .find_map(|name| tables.get(name)?.as_table_like());
    let overridden_keys = ["runtime_path", "runtime_type", "runtime_root"];
    Ok(table
        .into_iter()
        .flat_map(|table| table.iter())
        .filter(|(key, _)| !overridden_keys.contains(key))
        .filter_map(|(key, item)| {
            let value = item.as_value()?.clone().decorated("", "");
            Some((key.to_owned(), value.to_string()))
        })
        .collect())
}
