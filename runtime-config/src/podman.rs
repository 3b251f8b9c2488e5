//! Configures podman by two files: a hook in a hooks directory, which podman runs for every container
//! that root starts, and a drop-in with the runtime for `--runtime boathook`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml_edit::{Item, TableLike};

use crate::default_runtime::{DefaultRuntime, refuse_later};
use crate::drop_in::{self, HEADER};
use crate::error::Error;
use crate::facts::HANDLER;
use crate::host::HostRoot;
use crate::key_case;
use crate::oci_hook;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::toml_text::{self, item_at, line_of, parse, quote};

/// The main configuration files, in the order in which podman reads them
/// (containers.conf(5)).
const MAINS: [&str; 2] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
];
/// The runtimes that podman looks for if no file names a runtime. It uses the first one that
/// it finds.
const BUILT_IN: [&str; 2] = ["crun", "runc"];
const CONF_D: &str = "/etc/containers/containers.conf.d";

/// The drop-in directories that only newer versions of podman read (containers-config(5)).
/// The order in which podman reads all files differs between versions.
const NEWER_CONF_D: [&str; 3] = [
    "/usr/share/containers/containers.conf.d",
    "/usr/share/containers/containers.rootful.conf.d",
    "/etc/containers/containers.rootful.conf.d",
];

const DROP_IN: &str = "/etc/containers/containers.conf.d/99-boathook.conf";
const HOOKS_D: &str = "/etc/containers/oci/hooks.d";

/// The settings that decide what the default runtime is (containers.conf(5)).
const RUNTIME_SETTINGS: [&str; 2] = ["engine.runtime", "engine.runtimes"];

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    for path in MAINS.iter().chain(&[DROP_IN]) {
        snapshot.read(host, Path::new(path))?;
    }
    snapshot.read(host, &Path::new(HOOKS_D).join(oci_hook::FILE_NAME))?;
    for dir in NEWER_CONF_D.iter().chain(&[CONF_D]) {
        drop_in::read_dir(host, Path::new(dir), ".conf", snapshot)?;
    }
    // A file that does not parse is skipped here. Making the plan reports it.
    let configs = drop_in::in_order(snapshot, &MAINS, CONF_D);
    let (_, runtimes) = merge_runtimes(snapshot, &configs).unwrap_or_default();
    for path in runtimes.into_values().flatten() {
        snapshot.look_for_program(host, &path);
    }
    Ok(())
}

/// Returns the runtime of containers for which no runtime is named (containers.conf(5),
/// `runtime`).
///
/// # Errors
/// Fails if a file does not parse or has a key in another case, if a later file has
/// precedence over the drop-in that Boathook writes, or if a file that only newer versions
/// read names runtimes. Also fails if no file names a runtime and the host has neither crun
/// nor runc.
pub(crate) fn default_runtime(base: &Snapshot) -> Result<DefaultRuntime, Error> {
    let configs = drop_in::in_order(base, &MAINS, CONF_D);
    for dir in NEWER_CONF_D {
        for path in drop_in::in_order(base, &[], dir) {
            refuse_runtimes(base, &path)?;
        }
    }
    for path in &configs {
        let text = base.text(path).unwrap_or_default();
        let doc = parse(path, text)?;
        key_case::check_toml(path, text, &doc, &RUNTIME_SETTINGS)?;
        let table = item_at(&doc, &["engine"]).and_then(Item::as_table_like);
        if let Some((key, _)) = table.and_then(|table| table.get_key_value("runtime")) {
            let line = line_of(text, key.span().map_or(0, |span| span.start));
            refuse_later(Path::new(DROP_IN), path, line)?;
        }
    }
    let (default, runtimes) = merge_runtimes(base, &configs)?;
    let program = |name: &str| {
        let paths = runtimes.get(name).map_or(&[][..], Vec::as_slice);
        let found = paths.iter().find(|path| base.has_program(path));
        found.cloned().unwrap_or_else(|| PathBuf::from(name))
    };
    if let Some(name) = default {
        return Ok(DefaultRuntime::program(&name, program(&name)));
    }
    let built_in = BUILT_IN.iter().map(|name| (name, program(name)));
    let mut found = built_in.filter(|(_, program)| base.find_program(program).is_some());
    let (name, program) = found.next().ok_or_else(|| {
        let names = BUILT_IN.join(" nor ");
        Error::Other(format!(
            "podman: which runtime is its default cannot be determined, because neither {names} \
             was found: set `runtime` in {}, or leave --set-default out",
            MAINS[1]
        ))
    })?;
    Ok(DefaultRuntime::program(name, program))
}

/// Refuses settings of runtimes in a file that only newer versions of podman read. The host's
/// version is not known, so neither is the effect of the settings.
fn refuse_runtimes(base: &Snapshot, path: &Path) -> Result<(), Error> {
    let text = base.text(path).unwrap_or_default();
    let doc = parse(path, text)?;
    key_case::check_toml(path, text, &doc, &RUNTIME_SETTINGS)?;
    let table = item_at(&doc, &["engine"]).and_then(Item::as_table_like);
    for name in ["runtime", "runtimes"] {
        if let Some((key, _)) = table.and_then(|table| table.get_key_value(name)) {
            let line = line_of(text, key.span().map_or(0, |span| span.start));
            let problem = format!(
                "not every version of podman reads this file, so what \"{name}\" does here is not \
                 certain: move it to {}, or leave --set-default out",
                MAINS[1]
            );
            return Err(Error::new_at_line(path, line, problem));
        }
    }
    Ok(())
}

/// The paths of each runtime, by the runtime's name. podman uses the first path that exists.
type Runtimes = BTreeMap<String, Vec<PathBuf>>;

/// Merges the configuration files in their order. Returns the name of the default runtime, if a file
/// sets one, and the paths of all runtimes.
fn merge_runtimes(
    base: &Snapshot,
    configs: &[PathBuf],
) -> Result<(Option<String>, Runtimes), Error> {
    let mut default = None;
    let mut runtimes = BTreeMap::new();
    for path in configs {
        let doc = parse(path, base.text(path).unwrap_or_default())?;
        let engine = item_at(&doc, &["engine"]);
        let name = engine.and_then(|engine| engine.get("runtime")?.as_str());
        default = name
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .or(default);
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
    Ok((default, runtimes))
}

pub(crate) fn plan_files(
    base: &Snapshot,
    options: &Options,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let configs = drop_in::in_order(base, &MAINS, CONF_D);
    let mut text = format!("{HEADER}[engine]\n");
    if let Some(line) = oci_hook::hooks_dir_line(base, &configs, &["engine"], Path::new(HOOKS_D))? {
        text.push_str(&line);
    }
    if options.set_default {
        text += &format!("runtime = \"{HANDLER}\"\n");
    }
    let runtime = quote(&options.runtime.to_string_lossy());
    text += "\n[engine.runtimes]\n";
    for name in options.names() {
        toml_text::refuse_runtime(base, &configs, &["engine", "runtimes"], name)?;
        text += &format!("{name} = [{runtime}]\n");
    }
    let hook = Path::new(HOOKS_D).join(oci_hook::FILE_NAME);
    Ok(vec![
        (hook, oci_hook::file_text(options)),
        (DROP_IN.into(), text),
    ])
}
