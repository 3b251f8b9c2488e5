//! Finds engines on a host, and reads and plans their configuration files.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::containerd::{self, Layout};
use crate::default_runtime::DefaultRuntime;
use crate::engine_properties::{Engine, LoadCheck, OCI_RUNTIME_NAMES, PROGRAM_DIRECTORIES};
use crate::error::Error;
use crate::host::HostRoot;
use crate::options::InstallOptions;
use crate::record::InstallationRecord;
use crate::snapshot::Snapshot;
use crate::{crio, docker, podman};

enum ConfigFiles {
    Containerd(&'static Layout),
    Crio,
    Docker,
    Podman,
}

impl Engine {
    fn config_files(self) -> ConfigFiles {
        match self {
            Self::K3s => ConfigFiles::Containerd(&containerd::K3S_LAYOUT),
            Self::Rke2 => ConfigFiles::Containerd(&containerd::RKE2_LAYOUT),
            Self::K0s => ConfigFiles::Containerd(&containerd::K0S_LAYOUT),
            Self::Microk8s => ConfigFiles::Containerd(&containerd::MICROK8S_LAYOUT),
            Self::Containerd => ConfigFiles::Containerd(&containerd::CONTAINERD_LAYOUT),
            Self::Crio => ConfigFiles::Crio,
            Self::Docker => ConfigFiles::Docker,
            Self::Podman => ConfigFiles::Podman,
        }
    }

    /// Returns the path of a file that proves that the engine is installed or running on this host.
    /// This is the engine's program, or the socket of its daemon. A configuration directory proves
    /// nothing, because it may be left over from an engine that was removed.
    pub fn detect(self, host: &HostRoot) -> Option<PathBuf> {
        let properties = self.properties();
        let dirs = PROGRAM_DIRECTORIES
            .iter()
            .chain(properties.extra_program_dirs);
        let program_paths = dirs.flat_map(|dir| {
            properties
                .programs
                .iter()
                .map(|name| Path::new(dir).join(name))
        });
        // A socket path that two engines use does not show which of them is installed.
        let other_engines = Self::ALL.into_iter().filter(|engine| *engine != self);
        let is_socket_path_shared = other_engines
            .map(Self::properties)
            .any(|engine| engine.load_check == properties.load_check);
        let program = program_paths.into_iter().find(|path| host.exists(path));
        program.or_else(|| match properties.load_check {
            LoadCheck::Socket(path) if !is_socket_path_shared => {
                Some(PathBuf::from(path)).filter(|path| host.exists(path))
            }
            LoadCheck::DockerApi => docker::find_daemon_socket(host),
            LoadCheck::Socket(_) | LoadCheck::NoDaemon => None,
        })
    }

    /// Reads into a snapshot all files on which a plan for this engine depends.
    ///
    /// # Errors
    /// Fails if a file cannot be read. A file that does not parse is not an error here, because the
    /// plan reports it.
    pub fn read_snapshot(
        self,
        host: &HostRoot,
        record: Option<&InstallationRecord>,
    ) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot::default();
        for path in record.iter().flat_map(|record| record.paths()) {
            snapshot.read(host, path)?;
        }
        for name in OCI_RUNTIME_NAMES {
            snapshot.search_program(host, Path::new(name));
        }
        match self.config_files() {
            ConfigFiles::Containerd(layout) => {
                containerd::read_config_files(layout, host, &mut snapshot)?
            }
            ConfigFiles::Crio => crio::read_config_files(host, &mut snapshot)?,
            ConfigFiles::Docker => docker::read_daemon_config(host, &mut snapshot)?,
            ConfigFiles::Podman => podman::read_config_files(host, &mut snapshot)?,
        }
        Ok(snapshot)
    }

    /// Returns the default runtime. The engine uses it for containers that name no runtime.
    ///
    /// # Errors
    /// Fails if a file does not parse, or if a setting or an option has precedence over the file in
    /// which Boathook sets the default runtime.
    pub(crate) fn find_default_runtime(self, snapshot: &Snapshot) -> Result<DefaultRuntime, Error> {
        match self.config_files() {
            ConfigFiles::Containerd(layout) => containerd::find_default_runtime(layout, snapshot),
            ConfigFiles::Crio => crio::find_default_runtime(snapshot),
            ConfigFiles::Docker => docker::find_default_runtime(snapshot),
            ConfigFiles::Podman => podman::find_default_runtime(snapshot),
        }
    }

    /// Returns whether a base OCI specification ([`InstallOptions::base_spec`]) can be set in the
    /// engine's configuration.
    pub(crate) fn supports_base_spec(self) -> bool {
        matches!(self.config_files(), ConfigFiles::Containerd(_))
    }

    /// Returns the path and the text of each file that an installation writes for this engine. The
    /// files are in the order in which they are written.
    pub(crate) fn plan_files(
        self,
        snapshot: &Snapshot,
        options: &InstallOptions,
    ) -> Result<Vec<(PathBuf, String)>, Error> {
        match self.config_files() {
            ConfigFiles::Containerd(layout) => containerd::plan_files(layout, snapshot, options),
            ConfigFiles::Crio => crio::plan_files(snapshot, options),
            ConfigFiles::Docker => docker::plan_files(snapshot, options),
            ConfigFiles::Podman => podman::plan_files(snapshot, options),
        }
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if OCI_RUNTIME_NAMES.contains(&name) {
            return Err(Error::Other(format!(
                "{name} is a runtime, not an engine, and has no configuration: name the engine \
                 that calls it, or use boathook-runtime in place of {name}"
            )));
        }
        let name = if name == "cri-o" { "crio" } else { name };
        Self::ALL
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or_else(|| {
                let known_names = Self::ALL.map(Self::name).join(", ");
                Error::Other(format!("unknown engine \"{name}\"; one of {known_names}"))
            })
    }
}
