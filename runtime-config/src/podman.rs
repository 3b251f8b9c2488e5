//! Configures podman with two files. The first one is a hook in a hooks directory, which podman
//! runs for every container that root starts. The second one is a drop-in with the runtime for
//! `--runtime boathook`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml_edit::{Item, TableLike};

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

/// The main configuration files, in the order in which podman reads them (containers.conf(5)).
const MAIN_FILE_PATHS: [&str; 2] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
];
/// The runtimes for which podman searches if no file names a runtime. podman uses the first one
/// that it finds.
const BUILT_IN_RUNTIMES: [&str; 2] = ["crun", "runc"];
const CONF_D_DIR: &str = "/etc/containers/containers.conf.d";

/// The drop-in directories that only newer versions of podman read (containers-config(5)). Versions
/// differ in the order in which they read all these files.
const NEWER_CONF_D_DIRS: [&str; 3] = [
    "/usr/share/containers/containers.conf.d",
    "/usr/share/containers/containers.rootful.conf.d",
    "/etc/containers/containers.rootful.conf.d",
];

const DROP_IN_PATH: &str = "/etc/containers/containers.conf.d/99-boathook.conf";
const HOOKS_D_DIR: &str = "/etc/containers/oci/hooks.d";

/// The settings on which the default runtime depends (containers.conf(5)). A file with one of these
/// keys in another case is refused.
const DEFAULT_RUNTIME_SETTINGS: [&str; 2] = ["engine.runtime", "engine.runtimes"];

/// Reads into the snapshot all files on which a plan for podman depends, and the paths at which its
/// runtimes exist.
pub(crate) fn read_config_files(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    for path in MAIN_FILE_PATHS.iter().chain(&[DROP_IN_PATH]) {
        snapshot.read(host, Path::new(path))?;
    }
    snapshot.read(host, &Path::new(HOOKS_D_DIR).join(oci_hook::HOOK_FILE_NAME))?;
    for dir in NEWER_CONF_D_DIRS.iter().chain(&[CONF_D_DIR]) {
        drop_in::read_drop_ins(host, Path::new(dir), ".conf", snapshot)?;
    }
    // A file that does not parse is not an error here, because the plan reports it.
    let config_paths = drop_in::list_files_in_load_order(snapshot, &MAIN_FILE_PATHS, CONF_D_DIR);
    let (_, runtimes) = merge_runtimes(snapshot, &config_paths).unwrap_or_default();
    for path in runtimes.into_values().flatten() {
        snapshot.search_program(host, &path);
    }
    Ok(())
}

/// Returns the default runtime. podman uses it for containers that name no runtime
/// (containers.conf(5), `runtime`).
///
/// # Errors
/// Fails if a file does not parse, or has a key in another case than the documentation. Fails if a
/// later file has precedence over the drop-in that Boathook writes, or if a file that only newer
/// versions read names runtimes. Also fails if no file names a runtime and the host has neither
/// crun nor runc.
pub(crate) fn find_default_runtime(snapshot: &Snapshot) -> Result<DefaultRuntime, Error> {
    let config_paths = drop_in::list_files_in_load_order(snapshot, &MAIN_FILE_PATHS, CONF_D_DIR);
    for dir in NEWER_CONF_D_DIRS {
        for path in drop_in::list_files_in_load_order(snapshot, &[], dir) {
            refuse_runtime_settings(snapshot, &path)?;
        }
    }
    for path in &config_paths {
        let text = snapshot.get_text(path).unwrap_or_default();
        let doc = parse_document(path, text)?;
        key_case::refuse_ambiguous_toml_keys(path, text, &doc, &DEFAULT_RUNTIME_SETTINGS)?;
        let table = get_item(&doc, &["engine"]).and_then(Item::as_table_like);
        if let Some((key, _)) = table.and_then(|table| table.get_key_value("runtime")) {
            let line = find_line_number(text, key.span().map_or(0, |span| span.start));
            refuse_overriding_setting(Path::new(DROP_IN_PATH), path, line)?;
        }
    }
    let (default_name, runtimes) = merge_runtimes(snapshot, &config_paths)?;
    let get_program = |name: &str| {
        let paths = runtimes.get(name).map_or(&[][..], Vec::as_slice);
        let existing_path = paths.iter().find(|path| snapshot.has_program(path));
        existing_path
            .cloned()
            .unwrap_or_else(|| PathBuf::from(name))
    };
    if let Some(name) = default_name {
        return Ok(DefaultRuntime::new_program(&name, get_program(&name)));
    }
    let mut built_in_runtimes = BUILT_IN_RUNTIMES
        .iter()
        .map(|name| (name, get_program(name)))
        .filter(|(_, program)| snapshot.find_program(program).is_some());
    let (name, program) = built_in_runtimes.next().ok_or_else(|| {
        let names = BUILT_IN_RUNTIMES.join(" nor ");
        Error::Other(format!(
            "podman: which runtime is its default cannot be determined, because neither {names} \
             was found: set `runtime` in {}, or use --no-set-default",
            MAIN_FILE_PATHS[1]
        ))
    })?;
    Ok(DefaultRuntime::new_program(name, program))
}

/// Returns an error if a file that only newer versions of podman read has settings for runtimes.
/// The version of the host's podman is not known, so it is not known whether these settings take
/// effect.
fn refuse_runtime_settings(snapshot: &Snapshot, path: &Path) -> Result<(), Error> {
    let text = snapshot.get_text(path).unwrap_or_default();
    let doc = parse_document(path, text)?;
    key_case::refuse_ambiguous_toml_keys(path, text, &doc, &DEFAULT_RUNTIME_SETTINGS)?;
    let table = get_item(&doc, &["engine"]).and_then(Item::as_table_like);
    for setting in ["runtime", "runtimes"] {
        if let Some((key, _)) = table.and_then(|table| table.get_key_value(setting)) {
            let line = find_line_number(text, key.span().map_or(0, |span| span.start));
            let problem = format!(
                "not every version of podman reads this file, so what \"{setting}\" does here is not \
                 certain: move it to {}, or use --no-set-default",
                MAIN_FILE_PATHS[1]
            );
            return Err(Error::new_at_line(path, line, problem));
        }
    }
    Ok(())
}

/// The paths of the program of each runtime, by the name of the runtime. podman uses the first path
/// that exists.
type RuntimePaths = BTreeMap<String, Vec<PathBuf>>;

/// Merges the configuration files in load order. Returns the name of the default runtime, if a file
/// sets one, and the paths of all runtimes.
fn merge_runtimes(
    snapshot: &Snapshot,
    config_paths: &[PathBuf],
) -> Result<(Option<String>, RuntimePaths), Error> {
    let mut default_name = None;
    let mut runtimes = BTreeMap::new();
    for path in config_paths {
        let doc = parse_document(path, snapshot.get_text(path).unwrap_or_default())?;
        let engine = get_item(&doc, &["engine"]);
        let name = engine.and_then(|engine| engine.get("runtime")?.as_str());
        default_name = name
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .or(default_name);
        let tables = engine.and_then(|engine| engine.get("runtimes")?.as_table_like());
        for (name, paths) in tables.into_iter().flat_map(TableLike::iter) {
            let paths = paths
                .as_array()
                .into_iter()
                .flat_map(|array| array.iter())
                .filter_map(|path| path.as_str())
                .map(PathBuf::from)
                .collect();
            runtimes.insert(name.to_owned(), paths);
        }
    }
    Ok((default_name, runtimes))
}

/// Returns the paths and the texts of the two files that an installation writes: the hook's file,
/// and the drop-in with the runtime.
pub(crate) fn plan_files(
    snapshot: &Snapshot,
    options: &InstallOptions,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let config_paths = drop_in::list_files_in_load_order(snapshot, &MAIN_FILE_PATHS, CONF_D_DIR);
    let mut text = format!("{DROP_IN_HEADER}[engine]\n");
    if let Some(line) = oci_hook::format_hooks_dir_line(
        snapshot,
        &config_paths,
        &["engine"],
        Path::new(HOOKS_D_DIR),
    )? {
        text.push_str(&line);
    }
    if options.set_default {
        text += &format!("runtime = \"{RUNTIME_HANDLER_NAME}\"\n");
    }
    let runtime = quote(&options.runtime_path.to_string_lossy());
    text += "\n[engine.runtimes]\n";
    for name in options.names() {
        toml_text::refuse_existing_runtime(snapshot, &config_paths, &["engine", "runtimes"], name)?;
        text += &format!("{name} = [{runtime}]\n");
    }
    let hook = Path::new(HOOKS_D_DIR).join(oci_hook::HOOK_FILE_NAME);
    Ok(vec![
        (hook, oci_hook::format_hook_file(options)),
        (DROP_IN_PATH.into(), text),
    ])
}
