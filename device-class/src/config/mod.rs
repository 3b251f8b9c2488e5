//! Reads `/etc/boathook/config.toml`, the administrator's configuration of this host.

mod class;
mod directories;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use host_files::rooted_path::RegularFile;
use serde::Deserialize;

use crate::class::{DeviceClass, PodPattern};
use crate::load;
use crate::name::ClassName;
use crate::ownership::{self, OwnershipError};
use crate::similar;
use crate::strict_toml::{self, FileError};

pub use crate::class::ClassConfig;
pub use directories::{DIRECTORIES_FILE_PATH, InstalledDirectories};
pub use schema::CONFIG_JSON_SCHEMA;

/// The default path of the configuration file. An option can name another file, and a host can have
/// other [directories](InstalledDirectories).
pub const DEFAULT_PATH: &str = "/etc/boathook/config.toml";

/// The maximum size in bytes of the configuration file. A larger file is an error.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// # Boathook configuration
///
/// The configuration of all programs of Boathook on a host. Every key has a default, and the file
/// may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Config {
    /// The directories of class files. If two directories have a file of the same name, the file in
    /// the later directory is used.
    pub classes: Vec<PathBuf>,
    /// The directory below which the host's devices, drivers and libraries are found.
    pub host_root: PathBuf,
    /// The lowest severity of the messages that the hook and `boathook-runtime` report.
    pub log_level: LogLevel,
    /// Changes to class files on this host. The key is the name of the class.
    pub class: BTreeMap<ClassName, ClassConfig>,
    /// The rules that decide which requests for devices are allowed.
    pub trust: Trust,
    /// The OCI runtime that `boathook-runtime` executes.
    pub runtime: RuntimeConfig,
}

/// The severity of a message, from the most severe to the least severe. As a setting, it selects
/// the messages with this severity and with a higher one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum LogLevel {
    /// The reason why a container does not start or a command fails.
    Error,
    /// A problem that an administrator should know about, although the container starts.
    #[default]
    Warning,
    /// A list of the devices and files that a container gets.
    Info,
}

/// The table `[runtime]`: the OCI runtime that `boathook-runtime` executes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuntimeConfig {
    /// The path of the OCI runtime that does the work. `None` means the first of runc, crun and
    /// youki that exists on the host.
    pub path: Option<PathBuf>,
    /// The absolute path of the hook. `None` means the hook that is in the same directory as
    /// `boathook-runtime`.
    pub hook: Option<PathBuf>,
}

/// The table `[trust]`: the rules that decide which requests of containers for devices are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trust {
    /// The path of the kubelet's checkpoint file, which records the devices that are allocated to
    /// each container.
    pub kubelet_checkpoint: PathBuf,
    /// Pods that get the devices that their environment variables request, without an allocation by
    /// Kubernetes. `namespace` means all pods of a namespace. `namespace/name` means the pod with
    /// this name and the pods of the workload with this name (`name-…`).
    pub trusted_pods: Vec<PodPattern>,
    /// Whether a container that is not in a pod gets the devices that its environment variables
    /// request.
    pub allow_env_outside_kubernetes: bool,
    /// Whether a container that has CAP_SYS_ADMIN in a user namespace gets devices with masks, the
    /// mounts that hide directories. Such a container can unmount the masks.
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
            classes: InstalledDirectories::default().class_dirs().into(),
            host_root: "/".into(),
            log_level: LogLevel::default(),
            class: BTreeMap::new(),
            runtime: RuntimeConfig::default(),
            trust: Trust::default(),
        }
    }
}

impl Config {
    /// Puts `root` in front of the host paths in the configuration, for a process in a container in
    /// which the host's root directory is mounted at `root`, such as `/host`.
    pub fn with_root_prefix(mut self, root: &Path) -> Self {
        let to_mounted_path = |path: &Path| to_path_in_root(root, path);
        self.host_root = to_mounted_path(&self.host_root);
        self.classes = self
            .classes
            .iter()
            .map(|path| to_mounted_path(path))
            .collect();
        self
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        strict_toml::parse(path, text)
    }

    /// Returns the name of each table `[class.NAME]` whose class does not exist, with the name of
    /// the class that was probably meant. `known_names` are the names of the classes that exist.
    pub fn find_unknown_classes<'a>(
        &'a self,
        known_names: impl Iterator<Item = &'a str> + Clone,
    ) -> impl Iterator<Item = (&'a ClassName, Option<&'a str>)> {
        let is_unknown = |name: &&ClassName| {
            !known_names
                .clone()
                .any(|known_name| known_name == name.as_str())
        };
        let unknown_names: Vec<&ClassName> = self.class.keys().filter(is_unknown).collect();
        unknown_names.into_iter().map(move |name| {
            (
                name,
                similar::find_most_similar(name.as_str(), known_names.clone()),
            )
        })
    }

    /// Returns a warning for each table `[class.NAME]` whose class does not exist, with the class
    /// that was probably meant.
    pub fn describe_unknown_classes<'a>(
        &'a self,
        known_names: impl Iterator<Item = &'a str> + Clone,
    ) -> impl Iterator<Item = String> {
        self.find_unknown_classes(known_names)
            .map(|(name, similar_name)| {
                let hint = similar_name.map(|similar| format!("; did you mean [class.{similar}]?"));
                let hint = hint.unwrap_or_default();
                format!(
                    "the configuration has a table [class.{name}], but there is no such class{hint}"
                )
            })
    }

    /// Reads the configuration at `path`. Without `path`, reads the default file in this host's
    /// [directories](InstalledDirectories); that file may be missing.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid configuration, or `path` does not exist.
    pub fn load(path: Option<&Path>) -> Result<Self, FileError> {
        Self::load_from_host(Path::new("/"), path)
    }

    /// Reads the configuration as [`Config::load`] does, but the default file and the directories
    /// are those of the host whose root directory is `root`. The paths in the result are paths on
    /// that host.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid configuration, or `path` does not exist.
    fn load_from_host(root: &Path, path: Option<&Path>) -> Result<Self, FileError> {
        match ConfigSource::read(root, path)? {
            ConfigSource::File { file, text } => {
                let config = Self::parse(&file, &text)?;
                let default_directories = InstalledDirectories::default();
                if config.classes != default_directories.class_dirs() {
                    return Ok(config);
                }
                let directories = InstalledDirectories::find(root)?;
                if directories == default_directories {
                    return Ok(config);
                }
                Self::parse_with_directories(&directories, &file, &text)
            }
            ConfigSource::DefaultDirectories(directories) => Ok(Self {
                classes: directories.class_dirs().into(),
                ..Self::default()
            }),
        }
    }

    /// Reads the configuration for a process in a container in which the host's root directory is
    /// mounted at `host_root`. `path` is the path of the file in the container. Without `path`, the
    /// container's default file is read.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid configuration, or `path` does not exist.
    pub fn load_in_container(
        path: Option<&Path>,
        host_root: Option<&Path>,
    ) -> Result<Self, FileError> {
        let root = host_root.filter(|_| path.is_some());
        Self::load_from_host(root.unwrap_or(Path::new("/")), path)
    }

    /// Parses the text of a configuration. If the text does not set `classes`, the class files are
    /// those in `directories`, the directories in which Boathook is installed.
    ///
    /// # Errors
    /// The text is not a valid configuration.
    pub fn parse_with_directories(
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
            config.classes = directories.class_dirs().into();
        }
        Ok(config)
    }

    /// Reads the configuration as [`Config::load_in_container`] does. If it has a mistake, returns
    /// the mistake and the configuration that is installed on the host, which the hook uses, so
    /// that the node keeps its devices while an administrator corrects the file. Without
    /// `installed_path`, that is the host's default file.
    ///
    /// A table `[class.NAME]` that makes its class unusable is such a mistake as well. If the
    /// installed configuration has one too, the container's configuration is returned, and only
    /// the class is missing.
    ///
    /// # Errors
    /// The container's configuration has a mistake, and the host's configuration cannot be used.
    pub fn load_or_read_installed(
        path: Option<&Path>,
        host_root: Option<&Path>,
        installed_path: Option<&Path>,
    ) -> Result<(Self, Option<FileError>), FileError> {
        let given = Self::load_in_container(path, host_root);
        let Some(root) = host_root else {
            return Ok((given?, None));
        };
        let given_path = path.unwrap_or(Path::new(DEFAULT_PATH));
        let check = |config: &Self| config.check_tables_of_host(given_path, root);
        let error = match given.as_ref().map(check) {
            Ok(Ok(())) => return Ok((given?, None)),
            Ok(Err(error)) => error,
            Err(error) => error.clone(),
        };
        let installed = Self::load_installed(root, installed_path)
            .filter(|installed| given.is_err() || check(installed).is_ok());
        match installed {
            Some(installed) => Ok((installed, Some(error))),
            None => Ok((given?, None)),
        }
    }

    /// Reads the configuration that is installed on the host whose root directory is `root`:
    /// `installed_path`, or the default file. Returns `None` if there is none or it has a mistake.
    fn load_installed(root: &Path, installed_path: Option<&Path>) -> Option<Self> {
        let file = match installed_path {
            Some(installed_path) => to_path_in_root(root, installed_path),
            None => match ConfigSource::read(root, None) {
                Ok(ConfigSource::File { file, .. }) => file,
                Ok(ConfigSource::DefaultDirectories(_)) | Err(_) => return None,
            },
        };
        Self::load_from_host(root, Some(&file)).ok()
    }

    /// Checks the tables `[class.NAME]` against the classes of the host whose root directory is
    /// `root`, as [`Config::check_class_tables`] does. Classes whose files have a mistake are not
    /// checked.
    fn check_tables_of_host(&self, path: &Path, root: &Path) -> Result<(), FileError> {
        if self.class.is_empty() {
            return Ok(());
        }
        let directories = self.clone().with_root_prefix(root).classes;
        let sources = load::read_each_source(&directories).unwrap_or_default();
        let classes: Vec<DeviceClass> = sources
            .iter()
            .flatten()
            .filter(|source| {
                self.class.contains_key(&source.name) && !self.ignores_errors_of(source)
            })
            .filter_map(|source| source.parse().ok())
            .collect();
        self.check_class_tables(path, &classes)
    }
}

impl RuntimeConfig {
    /// Reads the table `[runtime]` of the configuration at `path`, or of the default file, which
    /// may be missing. The rest of the file may be invalid, and need not even be TOML, so that
    /// running containers can be stopped although the device configuration has a mistake.
    ///
    /// # Errors
    /// The file cannot be read, the table is invalid, or `path` does not exist.
    pub fn load(path: Option<&Path>) -> Result<Self, FileError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct RuntimeTable {
            runtime: RuntimeConfig,
        }
        let ConfigSource::File { file, text } = ConfigSource::read(Path::new("/"), path)? else {
            return Ok(Self::default());
        };
        let result = strict_toml::parse(&file, &text);
        let RuntimeTable { runtime } = result.or_else(|error| {
            let result = strict_toml::parse(&file, &extract_table(&text, "[runtime]"));
            result.map_err(|_| error)
        })?;
        Ok(runtime)
    }
}

/// Returns the lines of one table from a TOML text, beginning with its header. The rest of the text
/// may be invalid.
fn extract_table(text: &str, header: &str) -> String {
    let table_lines = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(header));
    let lines_after_header = table_lines.clone().skip(1);
    let lines_after_header =
        lines_after_header.take_while(|line| !line.trim_start().starts_with('['));
    table_lines
        .take(1)
        .chain(lines_after_header)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The text of the configuration file, or the directories in which Boathook is installed if the
/// host has no such file.
enum ConfigSource {
    File {
        file: PathBuf,
        text: String,
    },
    /// The host has no configuration file. These are the directories in which Boathook is
    /// installed.
    DefaultDirectories(InstalledDirectories),
}

impl ConfigSource {
    /// Reads the text of `path` or, without `path`, of the default file on the host whose root
    /// directory is `root`. The file with the host's directories is read only if [`DEFAULT_PATH`]
    /// does not exist, so that the hook starts faster on hosts with the default directories.
    fn read(root: &Path, path: Option<&Path>) -> Result<Self, FileError> {
        if let Some(file) = path {
            let text = read_trusted_text(file, ownership::open_trusted_file(file))?;
            let file = file.to_owned();
            return Ok(Self::File { file, text });
        }
        let file = to_path_in_root(root, Path::new(DEFAULT_PATH));
        if let Some(text) = read_optional_text(&file)? {
            return Ok(Self::File { file, text });
        }
        let directories = InstalledDirectories::find(root)?;
        let file = to_path_in_root(root, &directories.config_path());
        match read_optional_text(&file)? {
            Some(text) => Ok(Self::File { file, text }),
            None => Ok(Self::DefaultDirectories(directories)),
        }
    }
}

/// Converts an absolute path on a host to a path for this process, which sees the host's root
/// directory at `root`. With `/host`, `/etc/boathook` becomes `/host/etc/boathook`.
fn to_path_in_root(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Reads the text of a file. Returns `None` if the file does not exist. Fails if users other than
/// root can change the file, but a missing file is not an error even if they can change its
/// directory.
fn read_optional_text(file: &Path) -> Result<Option<String>, FileError> {
    let is_missing =
        || fs::metadata(file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match ownership::open_trusted_file(file) {
        Err(error) if error.is_absent() || is_missing() => Ok(None),
        result => read_trusted_text(file, result).map(Some),
    }
}

fn read_trusted_text(
    file: &Path,
    open_result: Result<RegularFile, OwnershipError>,
) -> Result<String, FileError> {
    let to_file_error =
        |error: OwnershipError| FileError::whole(file, error.describe_without_path(file));
    let to_read_error =
        |error: io::Error| FileError::whole(file, format!("cannot be read: {error}"));
    let bytes = open_result
        .map_err(to_file_error)?
        .read_bounded(MAX_FILE_BYTES);
    let text = String::from_utf8(bytes.map_err(to_read_error)?);
    text.map_err(|error| to_read_error(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with the directories /data/boathook and /data/etc/boathook.
    fn moved_host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        let record = to_path_in_root(host.path(), Path::new(DIRECTORIES_FILE_PATH));
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        let text = "programs = '/data/boathook'\nconfiguration = '/data/etc/boathook'\n";
        fs::write(record, text).unwrap();
        host
    }

    #[test]
    fn a_file_without_classes_has_those_of_the_installed_directories() {
        let (moved, usual) = (moved_host(), tempfile::tempdir().unwrap());
        let file = moved.path().join("site.toml");
        let of_moved = InstalledDirectories::find(moved.path())
            .unwrap()
            .class_dirs();
        let of_usual = InstalledDirectories::default().class_dirs();
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
            let config = Config::load_in_container(Some(&file), Some(host.path())).unwrap();
            assert_eq!(config.classes, classes, "{text}");
        }
    }
}
