//! The versions of containerd's configuration format. In each version the settings of the CRI
//! runtimes are in a different table (containerd, docs/cri/config.md).

use std::path::Path;

use crate::error::Error;
use crate::snapshot::Snapshot;
use crate::toml_text::{VERSIONED_KEYS, find_line_number, parse_document};

/// A version of containerd's configuration format.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    /// The value of the key `version` in a drop-in.
    pub(crate) version: i64,
    /// The id of the plugin whose section contains the runtime handlers, such as
    /// `io.containerd.cri.v1.runtime`.
    pub(crate) plugin_id: &'static str,
}

/// The format of containerd 1.3 to 1.7. containerd 2.x still reads it.
pub(crate) const SCHEMA_V2: Schema = Schema {
    version: 2,
    plugin_id: "io.containerd.grpc.v1.cri",
};
/// The format of containerd 2.0 and later.
pub(crate) const SCHEMA_V3: Schema = Schema {
    version: 3,
    plugin_id: "io.containerd.cri.v1.runtime",
};

impl Schema {
    /// Returns whether the section of a plugin in an imported file extends the section of the
    /// importing file. In other versions it replaces the whole section.
    pub(crate) fn merges_imports(&self) -> bool {
        self.version >= 3
    }

    /// Returns whether containerd adds the handlers of a file to its built-in handler. In
    /// containerd 1.x they replace the built-in handler, and the CRI plugin does not start without
    /// its default handler.
    pub(crate) fn merges_handlers(&self) -> bool {
        self.version >= 3
    }

    /// Returns the keys that lead to the table with the settings of all handlers. This table
    /// contains `default_runtime_name`, and one table for each handler in `runtimes`.
    pub(crate) fn handlers_table_path(&self) -> [&'static str; 3] {
        ["plugins", self.plugin_id, "containerd"]
    }
}

/// Detects the version of a configuration file. Returns `None` if the file does not exist, or if
/// it has neither a version nor a setting that depends on the version.
///
/// # Errors
/// Fails if the file does not parse, has version 1 or an unknown version, or disables the CRI
/// plugin.
pub(crate) fn detect_schema(
    snapshot: &Snapshot,
    path: &Path,
) -> Result<Option<&'static Schema>, Error> {
    let Some(text) = snapshot.get_text(path) else {
        return Ok(None);
    };
    let doc = parse_document(path, text)?;
    let find_key_line = |key: &str| {
        let key = doc
            .as_table()
            .get_key_value(key)
            .and_then(|(key, _)| key.span());
        find_line_number(text, key.map_or(0, |span| span.start))
    };
    let disabled_plugins = doc.get("disabled_plugins").and_then(|item| item.as_array());
    let is_cri =
        |name: &str| name == "cri" || name == SCHEMA_V2.plugin_id || name == SCHEMA_V3.plugin_id;
    if disabled_plugins
        .is_some_and(|names| names.iter().any(|name| name.as_str().is_some_and(is_cri)))
    {
        return Err(Error::CriDisabled {
            path: path.into(),
            line: find_key_line("disabled_plugins"),
        });
    }
    match doc.get("version").and_then(|value| value.as_integer()) {
        Some(2) => Ok(Some(&SCHEMA_V2)),
        // Version 4 moved settings of the daemon, but no settings of the CRI plugin. containerd
        // accepts a drop-in with a lower version than the main file.
        Some(3 | 4) => Ok(Some(&SCHEMA_V3)),
        None | Some(0 | 1) => match VERSIONED_KEYS.iter().find(|key| doc.contains_key(key)) {
            None if !doc.contains_key("version") => Ok(None),
            _ => Err(Error::new_at_line(
                path,
                find_key_line("version"),
                "configuration version 1, which containerd 2 no longer reads; convert it with \
                 \"containerd config migrate\"",
            )),
        },
        Some(version) => {
            let advice = "use a newer release of this program";
            let problem = format!("configuration version {version} is not known; {advice}");
            Err(Error::new_at_line(path, find_key_line("version"), problem))
        }
    }
}
