//! Describes the result of adding devices to `DeviceAllow=` of a systemd unit, as text for the log.

use std::fmt;
use std::path::PathBuf;

use super::unit::Unit;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemdReport {
    pub unit: Unit,
    pub outcome: UnitOutcome,
    /// The links `/dev/char/MAJOR:MINOR` or `/dev/block/MAJOR:MINOR` that were missing on the host.
    /// systemd before version 240 needs them to identify devices; for newer versions the list is
    /// empty.
    pub links: Vec<LinkReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitOutcome {
    NoSystemd,
    /// systemd does not know the unit, because another program has created a cgroup with the name
    /// of a unit.
    UnknownUnit,
    /// The unit restricts no devices. It was not changed, because a first entry in `DeviceAllow=`
    /// would make systemd deny all other devices.
    Unrestricted,
    AlreadyAllowed,
    Added {
        entry_count: usize,
    },
    NoPermission,
}

/// A link in `/dev/char` or `/dev/block` that was missing when a device was added to a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkReport {
    Created(PathBuf),
    /// The link could not be created. systemd before version 240 ignores an entry of `DeviceAllow=`
    /// if its link is missing.
    Missing {
        path: PathBuf,
        reason: String,
    },
}

impl SystemdReport {
    /// Reports whether the administrator should see this result in the log. This is so if links
    /// were missing on the host. It is also so if this process may not change the unit, because the
    /// device rules may then be lost.
    pub(crate) fn needs_log_entry(&self) -> bool {
        !self.links.is_empty() || self.outcome == UnitOutcome::NoPermission
    }
}

impl fmt::Display for SystemdReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.unit, self.outcome)?;
        for link in &self.links {
            write!(f, "; {link}")?;
        }
        Ok(())
    }
}

impl fmt::Display for UnitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSystemd => write!(f, "no systemd runs here"),
            Self::UnknownUnit => write!(f, "not known to systemd"),
            Self::Unrestricted => write!(f, "restricts no devices"),
            Self::AlreadyAllowed => write!(f, "already allowed"),
            Self::Added { entry_count: 1 } => write!(f, "1 entry added to DeviceAllow"),
            Self::Added { entry_count } => write!(f, "{entry_count} entries added to DeviceAllow"),
            Self::NoPermission => write!(
                f,
                "no permission to change the unit; rules may be lost on daemon-reload"
            ),
        }
    }
}

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created(path) => write!(f, "{} created for an old systemd", path.display()),
            Self::Missing { path, reason } => {
                let path = path.display();
                write!(
                    f,
                    "{path} is missing: {reason}; this old systemd drops the device when it reloads"
                )
            }
        }
    }
}
