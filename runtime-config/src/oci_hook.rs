//! The hooks.d file that CRI-O and podman read (oci-hooks(5), schema 1.0.0).

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::Error;
use crate::facts::{HOOK_ENV, HOOK_TIMEOUT};
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::toml_text::{item_at, parse, quote};

/// Its name is the same in every directory: of two files with one name the
/// engines take the later directory's, so the hook never runs twice.
pub(crate) const FILE_NAME: &str = "99-boathook.json";

/// The hook entry of an OCI spec (runtime-spec, config.md, "POSIX-platform
/// Hooks").
pub(crate) fn entry(options: &Options) -> serde_json::Value {
    json!({
        "path": options.hook,
        "args": ["boathook-hook", "prestart"],
        "env": [HOOK_ENV],
        "timeout": HOOK_TIMEOUT,
    })
}

/// The text of the hooks.d file.
///
/// Only the stage `prestart`: every version has it, and those that prefer
/// `createRuntime` write it as that. Naming both would run the hook twice.
pub(crate) fn file(options: &Options) -> String {
    let hook = json!({
        "version": "1.0.0",
        "hook": entry(options),
        "when": { "always": true },
        "stages": ["prestart"],
    });
    format!("{hook:#}\n")
}

/// The `hooks_dir` line that adds `dir`; `None` when the files read so far, in
/// the order in which the engine reads them, already end up with it.
///
/// An engine takes the last list that it reads, so ours repeats the one in
/// force.
pub(crate) fn hooks_dir_line(
    base: &Snapshot,
    configs: &[PathBuf],
    table: &[&str],
    dir: &Path,
) -> Result<Option<String>, Error> {
    let mut dirs = vec!["/usr/share/containers/oci/hooks.d".to_owned()];
    for path in configs {
        let doc = parse(path, base.text(path).unwrap_or_default())?;
        let list = item_at(&doc, table).and_then(|table| table.get("hooks_dir"));
        let list = list.and_then(|list| list.as_array());
        if let Some(list) = list {
            // podman: `{append=true}` in a list adds it to the one before.
            let append = list.iter().any(|v| v.as_inline_table().is_some());
            let strings = list.iter().filter_map(|v| v.as_str()).map(str::to_owned);
            dirs = if append {
                dirs.into_iter().chain(strings).collect()
            } else {
                strings.collect()
            };
        }
    }
    let dir = dir.to_string_lossy();
    if dirs.iter().any(|d| *d == dir) {
        return Ok(None);
    }
    dirs.push(dir.into_owned());
    let quoted: Vec<String> = dirs.iter().map(|d| quote(d)).collect();
    Ok(Some(format!("hooks_dir = [{}]\n", quoted.join(", "))))
}
