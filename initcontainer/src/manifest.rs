//! What an installation records of the host, apart from the engines.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use runtime_config::HostRoot;
use serde::{Deserialize, Serialize};

use crate::layout::MANIFEST;

/// The mode of everything in the state directory: a copy of an engine's
/// configuration may hold what not everyone may read.
pub const MODE: u32 = 0o600;

/// What was there before, so that uninstalling can bring it back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The directories that did not exist, outermost first.
    pub made_dirs: Vec<PathBuf>,
    #[serde(default)]
    pub versions: Vec<String>,
    #[serde(default)]
    pub links: Vec<PathBuf>,
    /// The text of the configuration that was written; `None`: there was one.
    pub config: Option<String>,
    /// The text that was there before, written by an earlier installation: it may
    /// still be there if this one was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_before: Option<String>,
}

impl Manifest {
    /// Whether an installation wrote this text as the configuration.
    pub fn has_written(&self, config: &str) -> bool {
        let written = [&self.config, &self.config_before];
        written.into_iter().flatten().any(|text| text == config)
    }

    /// The host's manifest; `None` when nothing is installed.
    pub fn load(host: &HostRoot) -> Result<Option<Self>> {
        let Some(text) = host.read(Path::new(MANIFEST))? else {
            return Ok(None);
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            anyhow!("{MANIFEST} is not valid: {error}; restore it from a backup, or remove it")
        })
    }

    pub fn to_text(&self) -> String {
        // Strings and lists alone: serialising them has no way to fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
