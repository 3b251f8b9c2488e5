//! Finds engines on a host, and reads and plans their configuration files.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::containerd::{self, Layout};
use crate::default_runtime::DefaultRuntime;
use crate::error::Error;
use crate::facts::{Engine, Liveness, PROGRAM_DIRECTORIES, RUNTIMES};
use crate::host::HostRoot;
use crate::options::Options;
use crate::record::InstallationRecord;
use crate::snapshot::Snapshot;
use crate::{crio, docker, podman};

/// The kind of an engine's configuration files.
enum ConfigFiles {
    Containerd(&'static Layout),
    Crio,
    Docker,
    Podman,
}

impl Engine {
    fn config_files(self) -> ConfigFiles {
        match self {
            Self::K3s => ConfigFiles::Containerd(&containerd::K3S),
            Self::Rke2 => ConfigFiles::Containerd(&containerd::RKE2),
            Self::K0s => ConfigFiles::Containerd(&containerd::K0S),
            Self::Microk8s => ConfigFiles::Containerd(&containerd::MICROK8S),
            Self::Containerd => ConfigFiles::Containerd(&containerd::PLAIN),
            Self::Crio => ConfigFiles::Crio,
            Self::Docker => ConfigFiles::Docker,
            Self::Podman => ConfigFiles::Podman,
        }
    }

    /// Returns a file that proves that the engine is installed or running on this host: its program,
    /// or the socket of its daemon. A configuration directory proves nothing, because it may be left
    /// over from an engine that was removed.
    pub fn detect(self, host: &HostRoot) -> Option<PathBuf> {
        let facts = self.facts();
        let dirs = PROGRAM_DIRECTORIES.iter().chain(facts.own_directories);
        let programs = dirs.flat_map(|dir| facts.programs.iter().map(|p| Path::new(dir).join(p)));
        // A socket path that two engines share does not identify either of them.
        let others = Self::ALL.into_iter().filter(|other| *other != self);
        let is_shared = others
            .map(Self::facts)
            .any(|other| other.liveness == facts.liveness);
        let program = programs.into_iter().find(|path| host.exists(path));
        program.or_else(|| match facts.liveness {
            Liveness::Socket(path) if !is_shared => {
                Some(PathBuf::from(path)).filter(|path| host.exists(path))
            }
            Liveness::DockerApi => docker::socket_of_daemon(host),
            Liveness::Socket(_) | Liveness::NoDaemon => None,
        })
    }

    /// Reads every file that a plan for this engine depends on.
    ///
    /// # Errors
    /// Fails if a file cannot be read. A file that does not parse is read; the plan reports it.
    pub fn read(
        self,
        host: &HostRoot,
        record: Option<&InstallationRecord>,
    ) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot::default();
        for path in record.iter().flat_map(|r| r.paths()) {
            snapshot.read(host, path)?;
        }
        for name in RUNTIMES {
            snapshot.look_for_program(host, Path::new(name));
        }
        match self.config_files() {
            ConfigFiles::Containerd(layout) => containerd::read(layout, host, &mut snapshot)?,
            ConfigFiles::Crio => crio::read(host, &mut snapshot)?,
            ConfigFiles::Docker => docker::read(host, &mut snapshot)?,
            ConfigFiles::Podman => podman::read(host, &mut snapshot)?,
        }
        Ok(snapshot)
    }

    /// Returns the runtime of containers for which no runtime is named.
    ///
    /// # Errors
    /// Fails if a file does not parse, or if a setting or an option has precedence over the file
    /// in which Boathook sets the default runtime.
    pub(crate) fn default_runtime(self, base: &Snapshot) -> Result<DefaultRuntime, Error> {
        match self.config_files() {
            ConfigFiles::Containerd(layout) => containerd::default_runtime(layout, base),
            ConfigFiles::Crio => crio::default_runtime(base),
            ConfigFiles::Docker => docker::default_runtime(base),
            ConfigFiles::Podman => podman::default_runtime(base),
        }
    }

    /// Returns whether [`Options::base_spec`] applies to this engine.
    pub(crate) fn has_base_spec(self) -> bool {
        matches!(self.config_files(), ConfigFiles::Containerd(_))
    }

    /// Returns the desired files of the engine, in the order in which they are written.
    pub(crate) fn plan_files(
        self,
        base: &Snapshot,
        options: &Options,
    ) -> Result<Vec<(PathBuf, String)>, Error> {
        match self.config_files() {
            ConfigFiles::Containerd(layout) => containerd::plan_files(layout, base, options),
            ConfigFiles::Crio => crio::plan_files(base, options),
            ConfigFiles::Docker => docker::plan_files(base, options),
            ConfigFiles::Podman => podman::plan_files(base, options),
        }
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if RUNTIMES.contains(&name) {
            return Err(Error::Other(format!(
                "{name} is a runtime, not an engine, and has no configuration: name the engine \
                 that calls it, or use boathook-runtime in place of {name}"
            )));
        }
        let name = if name == "cri-o" { "crio" } else { name };
        Self::ALL
            .into_iter()
            .find(|e| e.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                Error::Other(format!("unknown engine \"{name}\"; one of {known}"))
            })
    }
}
