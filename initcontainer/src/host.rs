//! Defines the host on which Boathook is installed, and the paths of the installation.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::Result;
use device_class::config::{DIRECTORIES_FILE_PATH, InstalledDirectories};
use runtime_config::{Engine, HostRoot};

use crate::layout::{LOCAL_DIR, temp_name_for_creation};

/// A host and the paths of Boathook's installation on it. The installation's directories are the
/// recorded ones, or the default ones if the host has no record of them.
#[derive(Debug, Clone)]
pub struct Host {
    root: HostRoot,
    directories: InstalledDirectories,
}

impl Deref for Host {
    type Target = HostRoot;

    fn deref(&self) -> &HostRoot {
        &self.root
    }
}

impl Host {
    /// Opens the host whose root directory is `root`.
    ///
    /// # Errors
    /// Fails if the root cannot be opened, or if the file with the recorded directories has an
    /// error or can be written to by users other than root.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = HostRoot::open(root)?;
        let path = Path::new(DIRECTORIES_FILE_PATH);
        let directories = match root.read(path)? {
            None => InstalledDirectories::default(),
            Some(text) => {
                root.check_root_only_writable(path)?;
                InstalledDirectories::parse(path, &text)?
            }
        };
        Ok(Self { root, directories })
    }

    /// Returns the same host, but with `directories` as the directories of the installation.
    #[must_use]
    pub fn with_directories(&self, directories: InstalledDirectories) -> Self {
        let root = self.root.clone();
        Self { root, directories }
    }

    pub fn directories(&self) -> &InstalledDirectories {
        &self.directories
    }

    /// Returns the program directory, such as `/opt/boathook`. It contains a directory for each
    /// installed version, and the state directory.
    pub fn programs_dir(&self) -> &Path {
        &self.directories.programs_dir
    }

    /// Returns the path of the symbolic link that leads to the version in use, such as
    /// `/opt/boathook/current`.
    pub fn current_link_path(&self) -> PathBuf {
        self.directories.current_link_path()
    }

    /// Returns the state directory, such as `/opt/boathook/state`. It contains the records that
    /// `uninstall` needs.
    pub fn state_dir(&self) -> PathBuf {
        self.directories.state_dir()
    }

    /// Returns the path of the installation's manifest, such as `/opt/boathook/state/install.json`.
    pub fn manifest_path(&self) -> PathBuf {
        self.state_dir().join("install.json")
    }

    /// Returns the path of the record that keeps the texts of an engine's files from before the
    /// installation, such as `/opt/boathook/state/docker.json`.
    pub fn record_path(&self, engine: Engine) -> PathBuf {
        self.state_dir().join(format!("{engine}.json"))
    }

    pub(crate) fn version_dir(&self, version: &str) -> PathBuf {
        self.programs_dir().join(version)
    }

    /// Returns the temporary directory in which a version is assembled. When the version is
    /// complete, the directory gets its final name.
    pub(crate) fn staging_dir(&self, version: &str) -> PathBuf {
        self.programs_dir()
            .join(temp_name_for_creation(version.as_ref()))
    }

    /// Returns the target of `link`, which is a link below /usr/local. The target is a file of the
    /// current version, such as `/opt/boathook/current/bin/boathook`.
    pub(crate) fn get_link_target(&self, link: &Path) -> PathBuf {
        self.current_link_path()
            .join(link.strip_prefix(LOCAL_DIR).unwrap_or(link))
    }

    /// Returns the path of `boathook`, the program with the commands for administrators.
    pub fn boathook_path(&self) -> PathBuf {
        self.directories.program_path("boathook")
    }

    /// Returns the path by which engines call the wrapper runtime. It leads through the link
    /// `current`, so an upgrade does not change it.
    pub fn runtime_path(&self) -> PathBuf {
        self.directories.program_path("boathook-runtime")
    }
}
