//! podman: a hooks.d file, which reaches every container that root starts, and
//! a drop-in that names the runtime for `--runtime boathook`.

use std::path::{Path, PathBuf};

use crate::drop_in::{self, HEADER};
use crate::error::Error;
use crate::facts::HANDLER;
use crate::host::HostRoot;
use crate::oci_hook;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::toml_text::quote;

/// In the order in which podman reads them (containers.conf(5)).
const MAINS: [&str; 2] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
];
const CONF_D: &str = "/etc/containers/containers.conf.d";
const DROP_IN: &str = "/etc/containers/containers.conf.d/99-boathook.conf";
const HOOKS_D: &str = "/etc/containers/oci/hooks.d";

pub(crate) fn read(host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    for path in MAINS.iter().chain(&[DROP_IN]) {
        snapshot.read(host, Path::new(path))?;
    }
    snapshot.read(host, &Path::new(HOOKS_D).join(oci_hook::FILE_NAME))?;
    drop_in::read_dir(host, Path::new(CONF_D), ".conf", snapshot)
}

pub(crate) fn desired(base: &Snapshot, options: &Options) -> Result<Vec<(PathBuf, String)>, Error> {
    let configs = drop_in::in_order(base, &MAINS, CONF_D);
    let mut text = format!("{HEADER}[engine]\n");
    if let Some(line) = oci_hook::hooks_dir_line(base, &configs, &["engine"], Path::new(HOOKS_D))? {
        text.push_str(&line);
    }
    if options.set_default {
        text += &format!("runtime = \"{HANDLER}\"\n");
    }
    let runtime = quote(&options.runtime.to_string_lossy());
    text += &format!("\n[engine.runtimes]\n{HANDLER} = [{runtime}]\n");
    let hook = Path::new(HOOKS_D).join(oci_hook::FILE_NAME);
    Ok(vec![
        (hook, oci_hook::file(options)),
        (DROP_IN.into(), text),
    ])
}
