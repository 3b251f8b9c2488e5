//! The hooks.d file that CRI-O and podman read (oci-hooks(5), schema 1.0.0).

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::Error;
use crate::facts::{HOOK_ENV, HOOK_TIMEOUT};
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::toml_text::{item_at, parse, quote};

/// The name of the file, the same in every directory. If two directories have a file of this
/// name, the engines use only that of the later directory, so the hook never runs twice.
pub(crate) const FILE_NAME: &str = "99-boathook.json";

/// Returns the hook entry of an OCI specification (runtime-spec, config.md, "POSIX-platform
/// Hooks").
pub(crate) fn hook_entry(options: &Options) -> serde_json::Value {
    json!({
        "path": options.hook,
        "args": ["boathook-hook", "prestart"],
        "env": [HOOK_ENV],
        "timeout": HOOK_TIMEOUT,
    })
}

/// Returns the text of the hooks.d file.
///
/// The file lists only the stage `prestart`. Every version of the engines supports this stage, and
/// versions that prefer `createRuntime` convert it. With both stages the hook would run twice.
pub(crate) fn file_text(options: &Options) -> String {
    let hook = json!({
        "version": "1.0.0",
        "hook": hook_entry(options),
        "when": { "always": true },
        "stages": ["prestart"],
    });
    format!("{hook:#}\n")
}

/// Returns the `hooks_dir` line that adds the directory `dir`. Returns `None` if the files
/// `configs`, in the order in which the engine reads them, already contain it.
///
/// An engine uses the last list that it reads, so the line repeats the directories of the list
/// that the files set.
pub(crate) fn hooks_dir_line(
    base: &Snapshot,
    configs: &[PathBuf],
    table: &[&str],
    dir: &Path,
) -> Result<Option<String>, Error> {
    let mut dirs = vec!["/usr/share/containers/oci/hooks.d".to_owned()];
    for path in configs {
        let doc = parse(path, base.text(path).unwrap_or_default())?;
        let list = item_at(&doc, table).and_then(|table| table.get("hooks_dir")?.as_array());
        if let Some(list) = list {
            // In podman's files, `{append=true}` in a list adds the list to the previous one.
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
