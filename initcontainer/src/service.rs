//! The services of a host that an installation can enable.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::layout::UNITS;

/// A service of the host that the installer can enable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Writes CDI specifications at each boot and after devices have changed.
    Cdi,
    /// Has containers follow devices that are unplugged and come back.
    Follow,
    /// Serves the kubelet, in place of a container of the DaemonSet.
    Plugin,
}

impl Service {
    pub(crate) const ALL: [Self; 3] = [Self::Cdi, Self::Follow, Self::Plugin];

    pub fn unit(self) -> &'static str {
        match self {
            Self::Cdi => "boathook-cdi.service",
            Self::Follow => "boathook-follow.service",
            Self::Plugin => "boathook-plugin.service",
        }
    }

    /// Returns the option of `install` that enables the service.
    pub fn option(self) -> &'static str {
        match self {
            Self::Cdi => "--cdi",
            Self::Follow => "--follow",
            Self::Plugin => "--plugin-service",
        }
    }

    /// Returns the directory of the links by which systemd starts the service.
    pub(crate) fn wants(self) -> PathBuf {
        Path::new(UNITS).join("multi-user.target.wants")
    }
}
