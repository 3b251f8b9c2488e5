//! The manifest. It records what an installation has changed on the host, except for the engines'
//! files, which have their own records.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use runtime_config::Engine;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::recorded_options::{EngineOptions, RecordedOptions};

/// The mode of all files in the state directory. Only root may read them, because the copy of an
/// engine's configuration may contain secrets.
pub const STATE_FILE_MODE: u32 = 0o600;

/// The manifest of an installation. With the manifest, `uninstall` restores the earlier state of
/// the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The directories that the installation has made. A directory comes before its subdirectories.
    pub made_dirs: Vec<PathBuf>,
    #[serde(default)]
    pub versions: Vec<String>,
    #[serde(default)]
    pub links: Vec<PathBuf>,
    /// The toolkits under whose names the installation offers Boathook (`--as`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolkits: Vec<String>,
    /// The symbolic links in Docker's PATH. Each link has the name of a program of a replaced
    /// toolkit, and leads to a program of Boathook.
    #[serde(
        rename = "compatibility_links",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub toolkit_links: Vec<PathBuf>,
    /// The configuration text that the installation has written. `None` means that the host already
    /// had a configuration.
    pub config: Option<String>,
    /// The configuration text that an earlier installation has written. If this installation was
    /// killed, the file may still contain that text.
    #[serde(
        rename = "config_before",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub previous_config: Option<String>,
    /// The options of the installation. An upgrade installs another version with the same options.
    #[serde(default)]
    pub options: RecordedOptions,
}

impl Manifest {
    /// Returns whether `config_text` is a configuration text that this installation or an earlier
    /// one wrote.
    pub fn has_written_config(&self, config_text: &str) -> bool {
        let texts = [&self.config, &self.previous_config];
        texts.into_iter().flatten().any(|text| text == config_text)
    }

    /// Returns the toolkits under whose names each engine calls Boathook. A manifest of an older
    /// version has only one list for all engines.
    pub fn list_toolkits_by_engine(&self) -> BTreeMap<Engine, Vec<String>> {
        let engines = &self.options.engines;
        let is_older = engines.values().all(|options| options.toolkits.is_empty());
        let list_toolkits = |options: &EngineOptions| {
            let toolkits = if is_older {
                &self.toolkits
            } else {
                &options.toolkits
            };
            toolkits.clone()
        };
        let options_by_engine = engines.iter();
        options_by_engine
            .map(|(engine, options)| (*engine, list_toolkits(options)))
            .collect()
    }

    /// Returns the options with which `engine` was configured. Returns `None` if no installation
    /// has configured it.
    pub fn find_engine_options(&self, engine: Engine) -> Option<EngineOptions> {
        let recorded = self.options.engines.get(&engine)?;
        let toolkits = self.list_toolkits_by_engine().remove(&engine);
        Some(EngineOptions {
            toolkits: toolkits.unwrap_or_default(),
            ..recorded.clone()
        })
    }

    /// Reads the host's manifest. Returns `None` if nothing is installed.
    pub fn load(host: &Host) -> Result<Option<Self>> {
        let manifest_path = host.manifest_path();
        let Some(text) = host.read(&manifest_path)? else {
            return Ok(None);
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            anyhow!(
                "{} is not valid: {error}; restore it from a backup, or move {} away",
                manifest_path.display(),
                host.programs_dir().display()
            )
        })
    }

    pub fn to_text(&self) -> String {
        // The empty text is never used, because strings, lists and maps with string keys can always
        // be serialized.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
