//! Reads `/etc/boathook/config.toml`, the administrator's configuration of this host.

mod class;
mod directories;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rooted_path::RegularFile;
use serde::Deserialize;

use crate::class::PodPattern;
use crate::name::ClassName;
use crate::ownership::{self, OwnershipError};
use crate::similar;
use crate::strict_toml::{self, FileError};

pub use crate::class::ClassConfig;
pub use directories::{DIRECTORIES_PATH, InstalledDirectories};
pub use schema::CONFIG_JSON_SCHEMA;

/// The path of the configuration, unless an option names another file or the host has other
/// [directories](InstalledDirectories).
pub const DEFAULT_PATH: &str = "/etc/boathook/config.toml";

/// The maximum size in bytes of the configuration file.
const MAX_FILE: u64 = 1 << 20;

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
            classes: InstalledDirectories::default().classes().into(),
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
        let below = |path: &Path| path_on_host(root, path);
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

    /// Reads `path`, or the default file, which may be absent: that of this host's
    /// [directories](InstalledDirectories).
    ///
    /// # Errors
    /// The file cannot be read, or is not a configuration; or `path` was given
    /// and does not exist.
    pub fn load(path: Option<&Path>) -> Result<Self, FileError> {
        Self::load_on(Path::new("/"), path)
    }

    /// Does the same as [`Config::load`] on a host whose root directory is `root`: the default file
    /// and the directories are those of this host. The paths in the result are the host's.
    ///
    /// # Errors
    /// The call fails for the same reasons as [`Config::load`].
    fn load_on(root: &Path, path: Option<&Path>) -> Result<Self, FileError> {
        match ConfigText::read(root, path)? {
            ConfigText::Found { file, text } => {
                let config = Self::parse(&file, &text)?;
                let usual = InstalledDirectories::default();
                if config.classes != usual.classes() {
                    return Ok(config);
                }
                let directories = InstalledDirectories::find(root)?;
                if directories == usual {
                    return Ok(config);
                }
                Self::parse_for(&directories, &file, &text)
            }
            ConfigText::Absent(directories) => Ok(Self {
                classes: directories.classes().into(),
                ..Self::default()
            }),
        }
    }

    /// Reads the configuration `path` that a process in a container was given, as
    /// `Config::load_on` does for the host whose root directory is mounted at `host_root`.
    /// Without a path, the default file is the container's.
    ///
    /// # Errors
    /// The call fails for the same reasons as [`Config::load`].
    pub fn load_given(path: Option<&Path>, host_root: Option<&Path>) -> Result<Self, FileError> {
        let root = host_root.filter(|_| path.is_some());
        Self::load_on(root.unwrap_or(Path::new("/")), path)
    }

    /// Parses the text of a configuration for a host on which Boathook is installed in
    /// `directories`. A text that does not set `classes` has those of the directories.
    ///
    /// # Errors
    /// The text is no configuration.
    pub fn parse_for(
        directories: &InstalledDirectories,
        path: &Path,
        text: &str,
    ) -> Result<Self, FileError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct ClassesKey {
            classes: Option<Vec<PathBuf>>,
        }
        let mut config = Self::parse(path, text)?;
        let key: ClassesKey = strict_toml::parse(path, text)?;
        if key.classes.is_none() {
            config.classes = directories.classes().into();
        }
        Ok(config)
    }

    /// Reads the configuration that a container was given, as [`Config::load`] does. If it has a
    /// mistake, reads the one that is installed on the host, whose root directory is mounted at
    /// `host_root`: the hook uses that one, and the node keeps its devices while an administrator
    /// corrects the other. `installed` is its path on the host, if it is not the default one. Then
    /// also returns the mistake.
    ///
    /// # Errors
    /// The given configuration has a mistake, and the host has no usable one.
    pub fn load_or_installed(
        path: Option<&Path>,
        host_root: Option<&Path>,
        installed: Option<&Path>,
    ) -> Result<(Self, Option<FileError>), FileError> {
        let error = match Self::load_given(path, host_root) {
            Ok(config) => return Ok((config, None)),
            Err(error) => error,
        };
        let Some(root) = host_root else {
            return Err(error);
        };
        let file = match installed {
            Some(installed) => path_on_host(root, installed),
            None => match ConfigText::read(root, None) {
                Ok(ConfigText::Found { file, .. }) => file,
                Ok(ConfigText::Absent(_)) | Err(_) => return Err(error),
            },
        };
        match Self::load_on(root, Some(&file)) {
            Ok(config) => Ok((config, Some(error))),
            Err(_) => Err(error),
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
        let ConfigText::Found { file, text } = ConfigText::read(Path::new("/"), path)? else {
            return Ok(Self::default());
        };
        let whole = strict_toml::parse(&file, &text);
        let RuntimeTable { runtime } = whole.or_else(|error| {
            let alone = strict_toml::parse(&file, &extract_table(&text, "[runtime]"));
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

/// The text of a configuration.
enum ConfigText {
    Found {
        file: PathBuf,
        text: String,
    },
    /// There is no default file in the directories of this host.
    Absent(InstalledDirectories),
}

impl ConfigText {
    /// Reads the text of `path`, or of the default file of the host whose root directory is `root`.
    /// The file with the directories of this host is looked for only if there is no configuration
    /// at the usual place, so that a start of the hook costs nothing on a host with the usual
    /// directories.
    fn read(root: &Path, path: Option<&Path>) -> Result<Self, FileError> {
        if let Some(file) = path {
            let text = read_trusted_text(file, ownership::open(file))?;
            let file = file.to_owned();
            return Ok(Self::Found { file, text });
        }
        let file = path_on_host(root, Path::new(DEFAULT_PATH));
        if let Some(text) = read_optional_text(&file)? {
            return Ok(Self::Found { file, text });
        }
        let directories = InstalledDirectories::find(root)?;
        let file = path_on_host(root, &directories.config());
        match read_optional_text(&file)? {
            Some(text) => Ok(Self::Found { file, text }),
            None => Ok(Self::Absent(directories)),
        }
    }
}

/// Returns the path at which this process finds the path of a host whose root directory is `root`.
fn path_on_host(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Reads the text of a file that only root can change. Returns `None` if it does not exist, whoever
/// can change the directories on the way.
fn read_optional_text(file: &Path) -> Result<Option<String>, FileError> {
    let is_missing =
        || fs::metadata(file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match ownership::open(file) {
        Err(error) if error.is_absent() || is_missing() => Ok(None),
        open => read_trusted_text(file, open).map(Some),
    }
}

fn read_trusted_text(
    file: &Path,
    open: Result<RegularFile, OwnershipError>,
) -> Result<String, FileError> {
    let refused = |error: OwnershipError| FileError::whole(file, error.describe_without_path(file));
    let unreadable = |error: io::Error| FileError::whole(file, format!("cannot be read: {error}"));
    let bytes = open.map_err(refused)?.read_bounded(MAX_FILE);
    let text = String::from_utf8(bytes.map_err(unreadable)?);
    text.map_err(|error| unreadable(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with the directories /data/boathook and /data/etc/boathook.
    fn moved_host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        let record = path_on_host(host.path(), Path::new(DIRECTORIES_PATH));
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        let text = "programs = '/data/boathook'\nconfiguration = '/data/etc/boathook'\n";
        fs::write(record, text).unwrap();
        host
    }

    #[test]
    fn a_file_without_classes_has_those_of_the_installed_directories() {
        let (moved, usual) = (moved_host(), tempfile::tempdir().unwrap());
        let file = moved.path().join("site.toml");
        let of_moved = InstalledDirectories::find(moved.path()).unwrap().classes();
        let of_usual = InstalledDirectories::default().classes();
        assert_ne!(of_moved, of_usual);
        let own = [PathBuf::from("/own")];
        let named = format!("classes = {of_usual:?}\n");
        for (text, host, classes) in [
            ("[class.dummy-npu]\nenabled = true\n", &moved, &of_moved[..]),
            ("[class.dummy-npu]\nenabled = true\n", &usual, &of_usual[..]),
            ("classes = ['/own']\n", &moved, &own[..]),
            ("classes = []\n", &moved, &[][..]),
            (&*named, &moved, &of_usual[..]),
        ] {
            fs::write(&file, text).unwrap();
            let config = Config::load_given(Some(&file), Some(host.path())).unwrap();
            assert_eq!(config.classes, classes, "{text}");
        }
    }
}
