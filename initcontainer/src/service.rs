//! The systemd services that an installation can enable.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::layout::SYSTEMD_UNITS_DIR;

/// A systemd service that an installation can enable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Writes CDI specifications at each boot and after devices have changed.
    Cdi,
    /// Runs `boathook facts`, which calls drivers' programs that report properties of devices. The
    /// timer runs it at each boot, once an hour, and after a driver was loaded.
    Facts,
    /// Runs `boathook follow`, which updates running containers when devices are unplugged and come
    /// back.
    Follow,
    /// Runs the device plugin on the host instead of in the DaemonSet's container.
    Plugin,
}

impl Service {
    pub(crate) const ALL: [Self; 4] = [Self::Cdi, Self::Facts, Self::Follow, Self::Plugin];

    /// Returns the name of the systemd unit that is enabled. For facts it is a timer, which starts
    /// the service of the same name.
    pub fn unit_name(self) -> &'static str {
        match self {
            Self::Cdi => "boathook-cdi.service",
            Self::Facts => "boathook-facts.timer",
            Self::Follow => "boathook-follow.service",
            Self::Plugin => "boathook-plugin.service",
        }
    }

    /// Returns the option of `install` that enables the service.
    pub fn install_option(self) -> &'static str {
        match self {
            Self::Cdi => "--cdi",
            Self::Facts => "--facts",
            Self::Follow => "--follow",
            Self::Plugin => "--plugin-service",
        }
    }

    /// Returns the directory in which `systemctl enable` makes the link that enables the service.
    pub(crate) fn wants_dir(self) -> PathBuf {
        let directory = match self {
            Self::Facts => "timers.target.wants",
            Self::Cdi | Self::Follow | Self::Plugin => "multi-user.target.wants",
        };
        Path::new(SYSTEMD_UNITS_DIR).join(directory)
    }
}
