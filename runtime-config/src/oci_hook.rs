//! The file in a hooks directory (hooks.d) that makes CRI-O and podman run the hook (oci-hooks(5),
//! schema 1.0.0).

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::engine_properties::{HOOK_ENVIRONMENT, HOOK_TIMEOUT_SECONDS};
use crate::error::Error;
use crate::options::InstallOptions;
use crate::snapshot::Snapshot;
use crate::toml_text::{get_item, parse_document, quote};

/// The name of the hook's file, which is the same in every hooks directory. If two directories have
/// a file with this name, the engines use only the file in the later directory. So the hook never
/// runs twice.
pub(crate) const HOOK_FILE_NAME: &str = "99-boathook.json";

/// Returns the entry of Boathook's hook for an OCI specification (runtime-spec, config.md,
/// "POSIX-platform Hooks").
pub(crate) fn build_hook_entry(options: &InstallOptions) -> serde_json::Value {
    json!({
        "path": options.hook_path,
        "args": ["boathook-hook", "prestart"],
        "env": [HOOK_ENVIRONMENT],
        "timeout": HOOK_TIMEOUT_SECONDS,
    })
}

/// Returns the text of the hook's file.
///
/// The file names only the stage `prestart`, which every version of the engines supports. Versions
/// that prefer `createRuntime` convert it. If the file named both stages, the hook would run twice.
pub(crate) fn format_hook_file(options: &InstallOptions) -> String {
    let hook = json!({
        "version": "1.0.0",
        "hook": build_hook_entry(options),
        "when": { "always": true },
        "stages": ["prestart"],
    });
    format!("{hook:#}\n")
}

/// Returns the TOML line with the list `hooks_dir`, which makes the engine read hooks from the
/// directory `dir` as well. Returns `None` if the files `config_paths`, which are in load order,
/// already list that directory.
///
/// An engine uses only the last list that it reads. So the line also contains the directories that
/// the existing files list.
pub(crate) fn format_hooks_dir_line(
    snapshot: &Snapshot,
    config_paths: &[PathBuf],
    table: &[&str],
    dir: &Path,
) -> Result<Option<String>, Error> {
    let mut dirs = vec!["/usr/share/containers/oci/hooks.d".to_owned()];
    for path in config_paths {
        let doc = parse_document(path, snapshot.get_text(path).unwrap_or_default())?;
        let list = get_item(&doc, table).and_then(|table| table.get("hooks_dir")?.as_array());
        if let Some(list) = list {
            // In podman's files, a list with `{append=true}` is added to the previous list.
            let appends_to_previous = list.iter().any(|value| value.as_inline_table().is_some());
            let strings = list
                .iter()
                .filter_map(|value| value.as_str())
                .map(str::to_owned);
            dirs = if appends_to_previous {
                dirs.into_iter().chain(strings).collect()
            } else {
                strings.collect()
            };
        }
    }
    let dir = dir.to_string_lossy();
    if dirs.iter().any(|listed_dir| *listed_dir == dir) {
        return Ok(None);
    }
    dirs.push(dir.into_owned());
    let quoted_dirs: Vec<String> = dirs.iter().map(|dir| quote(dir)).collect();
    Ok(Some(format!("hooks_dir = [{}]\n", quoted_dirs.join(", "))))
}
