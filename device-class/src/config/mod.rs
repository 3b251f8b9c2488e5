//! Reads `/etc/boathook/config.toml`, the administrator's configuration of this host.

mod class;
mod schema;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::class::PodPattern;
use crate::name::ClassName;
use crate::strict_toml::{self, FileError};
use crate::{ownership, similar};

pub use crate::class::ClassConfig;
pub use schema::CONFIG_JSON_SCHEMA;

/// The path of the configuration, unless an option names another file.
pub const DEFAULT_PATH: &str = "/etc/boathook/config.toml";

/// The largest configuration, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The path of a copy of the configuration with which Boathook was installed. A comparison with
/// the file at [`DEFAULT_PATH`] shows whether that file was changed.
pub const GIVEN_PATH: &str = "/opt/boathook/state/config.toml";

/// # Boathook configuration
///
/// The configuration of the hook and of the plugin. Every key has a default,
/// and so has the whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Config {
    /// The directories of class files; a later one masks an earlier one.
    pub classes: Vec<PathBuf>,
    /// The root under which the host's devices, drivers and libraries are.
    pub host_root: PathBuf,
    /// The least severe messages that the hook and `boathook-runtime` report.
    pub log_level: LogLevel,
    /// The changes to class files on this host, by class.
    pub class: BTreeMap<ClassName, ClassConfig>,
    /// The rules for who may grant devices to a container.
    pub trust: Trust,
    /// The OCI runtime that `boathook-runtime` executes.
    pub runtime: RuntimeConfig,
}

/// The severity of a message. As a setting, it selects the messages of this level and of all
/// levels before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum LogLevel {
    /// The reason why a container does not start, or a command fails.
    Error,
    /// Something that an administrator should know, although the container starts.
    #[default]
    Warning,
    /// A list of what a container was given.
    Info,
}

/// The table `[runtime]`: the OCI runtime that `boathook-runtime` executes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuntimeConfig {
    /// The path of the real OCI runtime. `None` means the first of runc, crun and youki that
    /// the host has.
    pub path: Option<PathBuf>,
    /// The absolute path of the hook. `None` means the hook in the directory of
    /// `boathook-runtime`.
    pub hook: Option<PathBuf>,
}

/// The table `[trust]`: who may grant the devices that a container requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trust {
    /// The path of the kubelet checkpoint, which records the devices of each container.
    pub kubelet_checkpoint: PathBuf,
    /// The pods whose own environment is enough: `namespace`, or
    /// `namespace/name`, which means the pod of that name and the pods that a
    /// workload of that name makes (`name-…`).
    pub trusted_pods: Vec<PodPattern>,
    /// Whether a container outside of pods gets the devices that its variables request.
    pub allow_env_outside_kubernetes: bool,
    /// Whether a container with CAP_SYS_ADMIN in a user namespace gets devices with masks. Such
    /// a container can unmount the masks.
    pub allow_removable_masks: bool,
}

impl Default for Trust {
    fn default() -> Self {
        Trust {
            kubelet_checkpoint: "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
                .into(),
            trusted_pods: Vec::new(),
            allow_env_outside_kubernetes: true,
            allow_removable_masks: false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            classes: vec![
                "/opt/boathook/current/classes.d".into(),
                "/usr/share/boathook/classes.d".into(),
                "/etc/boathook/classes.d".into(),
            ],
            host_root: "/".into(),
            log_level: LogLevel::default(),
            class: BTreeMap::new(),
            runtime: RuntimeConfig::default(),
            trust: Trust::default(),
        }
    }
}

impl Config {
    /// Returns the configuration for a process in a container that has the root of the host
    /// mounted at `root`.
    pub fn mounted_at(mut self, root: &Path) -> Self {
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        self.host_root = below(&self.host_root);
        self.classes = self.classes.iter().map(|path| below(path)).collect();
        self
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        strict_toml::parse(path, text)
    }

    /// Returns the tables `[class.NAME]` whose class is not among the `known` ones, each with
    /// the class that was probably meant.
    pub fn unknown_classes<'a>(
        &'a self,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> impl Iterator<Item = (&'a ClassName, Option<&'a str>)> {
        let unknown = |name: &&ClassName| !known.clone().any(|known| known == name.as_str());
        let unknown: Vec<&ClassName> = self.class.keys().filter(unknown).collect();
        let unknown = unknown.into_iter();
        unknown.map(move |name| {
            (
                name,
                similar::find_most_similar(name.as_str(), known.clone()),
            )
        })
    }

    /// Returns a warning for each table of [`Config::unknown_classes`].
    pub fn warn_of_unknown_classes<'a>(
        &'a self,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> impl Iterator<Item = String> {
        self.unknown_classes(known).map(|(name, near)| {
            let near = near.map(|near| format!("; did you mean [class.{near}]?"));
            let near = near.unwrap_or_default();
            format!(
                "the configuration has a table [class.{name}], but there is no such class{near}"
            )
        })
    }

    /// Reads `path`, or the default file, which may be absent.
    ///
    /// # Errors
    /// The file cannot be read, or is not a configuration; or `path` was given
    /// and does not exist.
    pub fn load(path: Option<&Path>) -> Result<Self, FileError> {
        match read(path)? {
            Some((file, text)) => strict_toml::parse(file, &text),
            None => Ok(Self::default()),
        }
    }

    /// Reads the configuration that a container was given, as [`Config::load`] does. If it has a
    /// mistake, reads the one that is installed on the host, whose root directory is mounted at
    /// `host_root`: the hook uses that one, and the node keeps its devices while an administrator
    /// corrects the other. Then also returns the mistake.
    ///
    /// # Errors
    /// The given configuration has a mistake, and the host has no usable one.
    pub fn load_or_installed(
        path: Option<&Path>,
        host_root: Option<&Path>,
    ) -> Result<(Self, Option<FileError>), FileError> {
        let error = match Self::load(path) {
            Ok(config) => return Ok((config, None)),
            Err(error) => error,
        };
        let below = Path::new(DEFAULT_PATH).strip_prefix("/");
        let installed = host_root
            .zip(below.ok())
            .map(|(root, path)| root.join(path));
        match installed.map(|path| Self::load(Some(&path))) {
            Some(Ok(config)) => Ok((config, Some(error))),
            _ => Err(error),
        }
    }
}

impl RuntimeConfig {
    /// Reads the table `[runtime]` of `path`, or of the default file, which may
    /// be absent. The rest of the file may be invalid, and need not even be TOML: running
    /// containers can be stopped although the configuration of devices has a mistake.
    ///
    /// # Errors
    /// The file cannot be read, or the table is wrong; or `path` was given and does not
    /// exist.
    pub fn load(path: Option<&Path>) -> Result<Self, FileError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct RuntimeTable {
            runtime: RuntimeConfig,
        }
        let Some((file, text)) = read(path)? else {
            return Ok(Self::default());
        };
        let whole = strict_toml::parse(file, &text);
        let RuntimeTable { runtime } = whole.or_else(|error| {
            let alone = strict_toml::parse(file, &extract_table(&text, "[runtime]"));
            alone.map_err(|_| error)
        })?;
        Ok(runtime)
    }
}

/// Returns the lines of one table of a TOML text, without the lines of other tables.
fn extract_table(text: &str, header: &str) -> String {
    let lines = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(header));
    let rest = lines.clone().skip(1);
    let rest = rest.take_while(|line| !line.trim_start().starts_with('['));
    lines
        .take(1)
        .chain(rest)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Reads the text of `path`, or of the default file. Returns `None` if the default file does
/// not exist.
fn read(path: Option<&Path>) -> Result<Option<(&Path, String)>, FileError> {
    let file = path.unwrap_or(Path::new(DEFAULT_PATH));
    match ownership::open(file) {
        Ok(open) => {
            let unreadable =
                |error: io::Error| FileError::whole(file, format!("cannot be read: {error}"));
            let bytes = open.read_bounded(MAX_FILE).map_err(unreadable)?;
            let text = String::from_utf8(bytes);
            let text = text.map_err(|error| unreadable(io::Error::other(error)))?;
            Ok(Some((file, text)))
        }
        Err(error) if path.is_none() && error.is_absent() => Ok(None),
        Err(error) => Err(FileError::whole(file, error.describe_without_path(file))),
    }
}
