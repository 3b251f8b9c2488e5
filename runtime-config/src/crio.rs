//! CRI-O: a hooks.d file, which reaches every container, and a drop-in with
//! the runtime handler that a RuntimeClass names.
//!
//! Both are under `/etc/crio`: `/usr`, where CRI-O's own hooks directory is,
//! can be read-only, and `/etc/containers` belongs to podman.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use toml_edit::{Item, Table};

use crate::drop_in::{self, HEADER};
use crate::error::Error;
use crate::facts::HANDLER;
use crate::host::HostRoot;
use crate::oci_hook;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::toml_text::{parse, quote};

const MAIN: &str = "/etc/crio/crio.conf";
const CONF_D: &str = "/etc/crio/crio.conf.d";
const DROP_IN: &str = "/etc/crio/crio.conf.d/99-boathook.conf";
const HOOKS_D: &str = "/etc/crio/hooks.d";

/// Where the runtime keeps its containers' state.
const RUNTIME_ROOT: &str = "/run/boathook";

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    snapshot.read(host, Path::new(MAIN))?;
    snapshot.read(host, Path::new(DROP_IN))?;
    snapshot.read(host, &Path::new(HOOKS_D).join(oci_hook::FILE_NAME))?;
    drop_in::read_dir(host, Path::new(CONF_D), "", snapshot)
}

pub(crate) fn desired(base: &Snapshot, options: &Options) -> Result<Vec<(PathBuf, String)>, Error> {
    let configs = drop_in::in_order(base, &[MAIN], CONF_D);
    let mut text = format!("{HEADER}[crio.runtime]\n");
    let table = ["crio", "runtime"];
    if let Some(line) = oci_hook::hooks_dir_line(base, &configs, &table, Path::new(HOOKS_D))? {
        text.push_str(&line);
    }
    if options.set_default {
        text += &format!("default_runtime = \"{HANDLER}\"\n");
    }
    text += &format!("\n[crio.runtime.runtimes.{HANDLER}]\n");
    text += &format!(
        "runtime_path = {}\n",
        quote(&options.runtime.to_string_lossy())
    );
    text += &format!("runtime_type = \"oci\"\nruntime_root = \"{RUNTIME_ROOT}\"\n");
    for (key, value) in inherited(base, &configs)? {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{key} = {value}");
    }
    let hook = Path::new(HOOKS_D).join(oci_hook::FILE_NAME);
    Ok(vec![
        (hook, oci_hook::file(options)),
        (DROP_IN.into(), text),
    ])
}

/// What the handler takes over from the default one: where the monitor is, and
/// in addition to what a distribution sets there.
fn inherited(base: &Snapshot, configs: &[PathBuf]) -> Result<Vec<(String, String)>, Error> {
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
    // Without a default_runtime CRI-O takes crun (1.31 and later) or runc.
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
