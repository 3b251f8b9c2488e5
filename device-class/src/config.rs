//! `/etc/boathook/config.toml`: what the administrator decides for this host.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::name::ClassName;
use crate::strict_toml::{self, FileError};

/// Where the configuration is unless an option says otherwise.
pub const DEFAULT_PATH: &str = "/etc/boathook/config.toml";

/// The configuration of the hook and of the plugin. Every key has a default,
/// and so has the whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The directories of class files; a later one masks an earlier one.
    pub classes: Vec<PathBuf>,
    /// The root under which the host's devices, drivers and libraries are.
    pub host_root: PathBuf,
    /// A file to which the hook also writes its messages: some runtimes throw
    /// a hook's stderr away.
    pub log_file: Option<PathBuf>,
    /// What differs on this host from what a class file says, by class.
    pub class: BTreeMap<ClassName, ClassConfig>,
}

/// `[class.NAME]`: what differs on this host from what the class file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassConfig {
    /// Where the class's driver has its files, such as
    /// `/run/nvidia/driver` for a driver that runs in a container.
    pub driver_root: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            classes: vec![
                "/usr/share/boathook/classes.d".into(),
                "/etc/boathook/classes.d".into(),
            ],
            host_root: "/".into(),
            log_file: None,
            class: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Reads `path`, or the default file, which may be absent.
    ///
    /// # Errors
    /// The file can't be read, or is not a configuration; or `path` was given
    /// and does not exist.
    pub fn load(path: Option<&Path>) -> Result<Self, FileError> {
        let file = path.unwrap_or(Path::new(DEFAULT_PATH));
        match fs::read_to_string(file) {
            Ok(text) => strict_toml::parse(file, &text),
            Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => {
                Ok(Config::default())
            }
            Err(error) => Err(FileError::whole(file, format!("can't be read: {error}"))),
        }
    }
}
