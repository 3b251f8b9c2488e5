//! Configures CRI-O by two files: a hook in a hooks directory, which CRI-O runs for every container,
//! and a drop-in with the runtime handler that a RuntimeClass can name.
//!
//! Both files are below `/etc/crio`. CRI-O's own hooks directory is below `/usr`, which may be
//! read-only, and `/etc/containers` belongs to podman.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use toml_edit::{Item, Table};

use crate::daemon_options::{Daemon, DaemonOption};
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

const MAIN: &str = "/etc/crio/crio.conf";
const CONF_D: &str = "/etc/crio/crio.conf.d";
const DROP_IN: &str = "/etc/crio/crio.conf.d/99-boathook.conf";
const HOOKS_D: &str = "/etc/crio/hooks.d";

/// The directory in which `boathook-runtime` keeps the state of its containers.
const RUNTIME_ROOT: &str = "/run/boathook";

const DAEMON: Daemon = Daemon {
    program: "crio",
    unit: "crio.service",
    init_script: "/etc/init.d/crio",
    variable_files: &["/etc/default/crio", "/etc/sysconfig/crio"],
    config: (&["--config", "-c"], MAIN),
};

const DEFAULT_OPTION: &str = "--default-runtime";

/// The settings that decide what the default runtime is (crio.conf(5)).
const RUNTIME_SETTINGS: [&str; 3] = [
    "crio.runtime.default_runtime",
    "crio.runtime.runtimes.*.runtime_path",
    "crio.runtime.runtimes.*.runtime_type",
];

/// The values of `runtime_type` for which CRI-O calls a program with the command line of an
/// OCI runtime. Another value, such as `vm`, names a runtime that isolates containers
/// differently.
const PROGRAM_TYPES: [&str; 3] = ["", "oci", "pod"];

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    snapshot.set_default_runtime_option(DAEMON.find_option(host, DEFAULT_OPTION));
    snapshot.read(host, Path::new(MAIN))?;
    snapshot.read(host, Path::new(DROP_IN))?;
    snapshot.read(host, &Path::new(HOOKS_D).join(oci_hook::FILE_NAME))?;
    drop_in::read_dir(host, Path::new(CONF_D), "", snapshot)
}

pub(crate) fn plan_files(
    base: &Snapshot,
    options: &Options,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let configs = drop_in::in_order(base, &[MAIN], CONF_D);
    let mut text = format!("{HEADER}[crio.runtime]\n");
    let table = ["crio", "runtime"];
    if let Some(line) = oci_hook::hooks_dir_line(base, &configs, &table, Path::new(HOOKS_D))? {
        text.push_str(&line);
    }
    if options.set_default {
        text += &format!("default_runtime = \"{HANDLER}\"\n");
    }
    let inherited = inherited_settings(base, &configs)?;
    for name in options.names() {
        toml_text::refuse_runtime(base, &configs, &["crio", "runtime", "runtimes"], name)?;
        text += &format!("\n[crio.runtime.runtimes.{name}]\n");
        text += &format!(
            "runtime_path = {}\n",
            quote(&options.runtime.to_string_lossy())
        );
        text += &format!("runtime_type = \"oci\"\nruntime_root = \"{RUNTIME_ROOT}\"\n");
        for (key, value) in &inherited {
            // Writing to a string does not fail, so the result can be ignored.
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    let hook = Path::new(HOOKS_D).join(oci_hook::FILE_NAME);
    Ok(vec![
        (hook, oci_hook::file_text(options)),
        (DROP_IN.into(), text),
    ])
}

/// Returns the runtime of containers for which no runtime is named.
///
/// # Errors
/// Fails if a file does not parse or has a key in another case. Also fails if a command-line
/// option or a later file has precedence over the drop-in that Boathook writes, because
/// `--set-default` would then have no effect.
pub(crate) fn default_runtime(base: &Snapshot) -> Result<DefaultRuntime, Error> {
    if let Some(DaemonOption { value, source }) = base.default_runtime_option() {
        return Err(Error::Other(format!(
            "crio: {DEFAULT_OPTION}={value} in {source} has precedence over {DROP_IN}: take the \
             option out and restart crio, or leave --set-default out"
        )));
    }
    let configs = drop_in::in_order(base, &[MAIN], CONF_D);
    for path in &configs {
        let text = base.text(path).unwrap_or_default();
        let doc = parse(path, text)?;
        key_case::check_toml(path, text, &doc, &RUNTIME_SETTINGS)?;
        let table = item_at(&doc, &["crio", "runtime"]).and_then(Item::as_table_like);
        if let Some((key, _)) = table.and_then(|table| table.get_key_value("default_runtime")) {
            let line = line_of(text, key.span().map_or(0, |span| span.start));
            refuse_later(Path::new(DROP_IN), path, line)?;
        }
    }
    let (default, runtimes) = merge_runtimes(base, &configs)?;
    let runtime_table = |name: &str| runtimes.get(name).and_then(Item::as_table_like);
    // Without `default_runtime`, CRI-O uses crun or runc, depending on its version.
    let default_table = match &default {
        Some(name) => Some((name.as_str(), runtime_table(name))),
        None => ["crun", "runc"]
            .into_iter()
            .find_map(|name| Some((name, Some(runtime_table(name)?)))),
    };
    let Some((name, table)) = default_table else {
        return Ok(DefaultRuntime::runc());
    };
    let text = |key: &str| {
        let value = table.and_then(|table| table.get(key)?.as_str());
        value.unwrap_or_default().to_owned()
    };
    let (program, kind) = (text("runtime_path"), text("runtime_type"));
    Ok(match program.as_str() {
        _ if !PROGRAM_TYPES.contains(&kind.as_str()) => {
            DefaultRuntime::new_other(name, format!("runtime_type {kind}"))
        }
        "" => DefaultRuntime::program(name, name),
        program => DefaultRuntime::program(name, program),
    })
}

/// Merges the configuration files in their order. Returns the name of the default runtime, if a file
/// sets one, and the tables of all runtimes by name.
fn merge_runtimes(base: &Snapshot, configs: &[PathBuf]) -> Result<(Option<String>, Table), Error> {
    let mut default = None;
    let mut merged = Table::new();
    for path in configs {
        let doc = parse(path, base.text(path).unwrap_or_default())?.into_mut();
        let runtime = doc.get("crio").and_then(|c| c.get("runtime"));
        let name = runtime
            .and_then(|r| r.get("default_runtime"))
            .and_then(Item::as_str);
        default = name.map(str::to_owned).or(default);
        let runtimes = runtime
            .and_then(|r| r.get("runtimes"))
            .and_then(Item::as_table_like);
        for (name, table) in runtimes.into_iter().flat_map(|r| r.iter()) {
            merged.insert(name, table.clone());
        }
    }
    Ok((default, merged))
}

/// Returns the settings that Boathook's handler takes over from the default runtime, such as
/// the path of the monitor (conmon). A distribution may set them for its own paths, and
/// containers of Boathook's handler need the same ones.
fn inherited_settings(
    base: &Snapshot,
    configs: &[PathBuf],
) -> Result<Vec<(String, String)>, Error> {
    let (default, merged) = merge_runtimes(base, configs)?;
    // Without `default_runtime`, CRI-O uses crun (1.31 and later) or runc.
    let names = [default.as_deref().unwrap_or("crun"), "crun", "runc"];
    let table = names
        .iter()
        .find_map(|name| merged.get(name)?.as_table_like());
    let own = ["runtime_path", "runtime_type", "runtime_root"];
    Ok(table
        .into_iter()
        .flat_map(|t| t.iter())
        .filter(|(key, _)| !own.contains(key))
        .filter_map(|(key, item)| {
            let value = item.as_value()?.clone().decorated("", "");
            Some((key.to_owned(), value.to_string()))
        })
        .collect())
}
