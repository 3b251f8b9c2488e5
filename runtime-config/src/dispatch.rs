//! Which module reads and writes an engine's files.

use std::path::PathBuf;

use crate::containerd::{self, Layout};
use crate::engine::Engine;
use crate::error::Error;
use crate::host::HostRoot;
use crate::options::Options;
use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::{crio, docker, podman};

/// A form of configuration.
enum Files {
    Containerd(&'static Layout),
    Crio,
    Docker,
    Podman,
}

impl Engine {
    fn files(self) -> Files {
        match self {
            Self::K3s => Files::Containerd(&containerd::K3S),
            Self::Rke2 => Files::Containerd(&containerd::RKE2),
            Self::K0s => Files::Containerd(&containerd::K0S),
            Self::Microk8s => Files::Containerd(&containerd::MICROK8S),
            Self::Containerd => Files::Containerd(&containerd::PLAIN),
            Self::Crio => Files::Crio,
            Self::Docker => Files::Docker,
            Self::Podman => Files::Podman,
        }
    }

    /// Reads every file that a plan for this engine looks at.
    ///
    /// # Errors
    /// A file cannot be read. One that does not parse is the plan's concern.
    pub fn read(self, host: &HostRoot, record: Option<&Record>) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot::default();
        for path in record.iter().flat_map(|r| r.paths()) {
            snapshot.read(host, path)?;
        }
        match self.files() {
            Files::Containerd(layout) => containerd::read(layout, host, &mut snapshot)?,
            Files::Crio => crio::read(host, &mut snapshot)?,
            Files::Docker => docker::read(host, &mut snapshot)?,
            Files::Podman => podman::read(host, &mut snapshot)?,
        }
        Ok(snapshot)
    }

    /// The files that the engine should have, in the order of writing.
    pub(crate) fn desired(
        self,
        base: &Snapshot,
        options: &Options,
    ) -> Result<Vec<(PathBuf, String)>, Error> {
        match self.files() {
            Files::Containerd(layout) => containerd::desired(layout, base, options),
            Files::Crio => crio::desired(base, options),
            Files::Docker => docker::desired(base, options),
            Files::Podman => podman::desired(base, options),
        }
    }
}
