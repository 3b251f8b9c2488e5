//! The manifest: the record of an installation's changes to the host, except for engines.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use runtime_config::HostRoot;
use serde::{Deserialize, Serialize};

use crate::layout::MANIFEST;
use crate::recorded_options::RecordedOptions;

/// The mode of all files in the state directory. Only root may read them, because the copy of an
/// engine's configuration may contain secrets.
pub const MODE: u32 = 0o600;

/// The manifest of an installation. A removal uses it to restore the earlier state of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The directories that the installation made, outermost first.
    pub made_dirs: Vec<PathBuf>,
    #[serde(default)]
    pub versions: Vec<String>,
    #[serde(default)]
    pub links: Vec<PathBuf>,
    /// The toolkits under whose names the installation offers Boathook (`--as`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolkits: Vec<String>,
    /// The links with the names of the toolkits' programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compatibility_links: Vec<PathBuf>,
    /// The text of the configuration that was written. `None` means that the host already had
    /// a configuration.
    pub config: Option<String>,
    /// The text that an earlier installation wrote. The file may still contain it if this
    /// installation was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_before: Option<String>,
    /// The options with which an upgrade installs another version.
    #[serde(default)]
    pub options: RecordedOptions,
}

impl Manifest {
    /// Returns whether an installation wrote this text as the configuration.
    pub fn has_written(&self, config: &str) -> bool {
        let written = [&self.config, &self.config_before];
        written.into_iter().flatten().any(|text| text == config)
    }

    /// Reads the host's manifest. Returns `None` if nothing is installed.
    pub fn load(host: &HostRoot) -> Result<Option<Self>> {
        let Some(text) = host.read(Path::new(MANIFEST))? else {
            return Ok(None);
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            anyhow!("{MANIFEST} is not valid: {error}; restore it from a backup, or remove it")
        })
    }

    pub fn to_text(&self) -> String {
        // The manifest has only strings, lists and tables with names as keys, whose serialization cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
