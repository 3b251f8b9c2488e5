//! The options of an installation. The manifest records them, so that an upgrade installs another
//! version with the same options.

use std::collections::BTreeMap;
use std::path::PathBuf;

use runtime_config::{Engine, InstallOptions};
use serde::{Deserialize, Serialize};

use crate::plugin_argument::PluginArgument;
use crate::service::Service;

/// The options of an installation that an upgrade needs and cannot read from other files of the
/// host. The requested configuration, for example, is kept in a file of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordedOptions {
    /// The directory of the release, as a path on the host. `None` means that the release was in a
    /// container, where the host cannot read it.
    #[serde(rename = "source")]
    pub source_dir: Option<PathBuf>,
    /// The value of `--classes`: a directory, or `none`.
    #[serde(rename = "classes")]
    pub classes_dir: Option<PathBuf>,
    /// The value of `--own-classes`: the directory of the administrator's class files.
    #[serde(rename = "own_classes")]
    pub own_classes_dir: Option<PathBuf>,
    /// The enabled services (`--cdi`, `--facts`, `--follow`, `--plugin-service`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// The arguments of the plugin's service (`--plugin-arg`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugin_arguments: Vec<PluginArgument>,
    pub engines: BTreeMap<Engine, EngineOptions>,
}

/// The options with which one engine was configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineOptions {
    /// Whether the wrapper is the engine's default runtime (`--set-default`).
    pub set_default: bool,
    /// The text of the file that the option `--base-spec` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_spec: Option<String>,
    /// The toolkits under whose names the engine calls Boathook (`--as`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolkits: Vec<String>,
}

impl EngineOptions {
    pub(crate) fn new(options: &InstallOptions, toolkits: &[String]) -> Self {
        Self {
            set_default: options.set_default,
            base_spec: options.base_spec.clone(),
            toolkits: toolkits.to_vec(),
        }
    }
}
