//! Tells systemd which devices a unit may use.
//!
//! systemd makes a unit's device rules anew from its own record whenever it
//! sees a reason, `daemon-reload` for one. Rules that are only in the cgroup are
//! then lost, or overruled by a second program. So they go into the unit's
//! `DeviceAllow=` first, at run time, without a file that would outlast a boot.

mod connection;
#[cfg(test)]
mod conversation_tests;
mod dev_links;
mod error;
mod manager;
mod message;
mod reply;
mod unit;

use std::fmt;
use std::path::{Path, PathBuf};

pub use connection::Sockets;
pub use error::{BusError, SystemdError};
pub use unit::Unit;

use super::rule::{self, Access, DeviceRule};
use connection::Connection;
use manager::{DeviceAllow, DevicePolicy};

/// What came of the rules at one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemdReport {
    /// The unit.
    pub unit: Unit,
    /// What was done.
    pub outcome: UnitOutcome,
    /// Links that an old systemd needs to know the devices.
    pub links: Vec<LinkReport>,
}

/// What was done with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitOutcome {
    /// No systemd runs here.
    NoSystemd,
    /// systemd doesn't have the unit: something else has made the cgroup.
    UnknownUnit,
    /// The unit restricts no devices. It was left so: the first entry would
    /// make it restrict all others.
    Unrestricted,
    /// The unit allows the devices already.
    AlreadyAllowed,
    /// Entries were added.
    Added {
        /// How many.
        entries: usize,
    },
    /// systemd takes no orders from this user.
    NoPermission,
}

/// A `/dev/char` or `/dev/block` link that was missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkReport {
    /// It was made.
    Made(PathBuf),
    /// It could not be made, so this systemd will ignore the device's rule.
    Missing {
        /// The link.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The host's systemd and `/dev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSystemd {
    /// Where systemd can be talked to.
    pub sockets: Sockets,
    /// The host's `/dev`.
    pub dev: PathBuf,
}

impl Default for HostSystemd {
    fn default() -> Self {
        Self {
            sockets: Sockets::default(),
            dev: "/dev".into(),
        }
    }
}

/// Adds `rules` to what `unit` allows, if it restricts devices at all.
///
/// # Errors
///
/// If systemd can't be talked to within two seconds, or refuses. The device can
/// be used all the same once the cgroup's rules are set, until systemd makes
/// them anew.
pub fn allow(unit: &Unit, rules: &[DeviceRule]) -> Result<SystemdReport, SystemdError> {
    let mut systemd = Systemd::new(HostSystemd::default());
    systemd.allow(unit, rules)
}

/// A conversation with systemd about any number of units.
pub(super) struct Systemd {
    host: HostSystemd,
    bus: Option<Connection>,
}

impl Systemd {
    pub(super) fn new(host: HostSystemd) -> Self {
        Self { host, bus: None }
    }

    /// See [`allow`].
    pub(super) fn allow(
        &mut self,
        unit: &Unit,
        rules: &[DeviceRule],
    ) -> Result<SystemdReport, SystemdError> {
        let mut report = SystemdReport {
            unit: unit.clone(),
            outcome: UnitOutcome::NoSystemd,
            links: Vec::new(),
        };
        let done = self.try_allow(unit, &rule::merge(rules), &mut report.links);
        report.outcome = match done {
            Ok(outcome) => outcome,
            Err(error) => match refusal(&error) {
                Some(outcome) => outcome,
                None => {
                    self.bus = None;
                    return Err(SystemdError {
                        unit: unit.clone(),
                        source: error,
                    });
                }
            },
        };
        Ok(report)
    }

    fn try_allow(
        &mut self,
        unit: &Unit,
        rules: &[DeviceRule],
        links: &mut Vec<LinkReport>,
    ) -> Result<UnitOutcome, BusError> {
        let bus = match &mut self.bus {
            Some(bus) => bus,
            none => match Connection::open(&self.host.sockets)? {
                Some(bus) => none.insert(bus),
                None => return Ok(UnitOutcome::NoSystemd),
            },
        };
        let policy = manager::device_policy(bus, unit)?;
        if !policy.restricts() {
            return Ok(UnitOutcome::Unrestricted);
        }
        let entries = missing(&policy, rules);
        if entries.is_empty() {
            return Ok(UnitOutcome::AlreadyAllowed);
        }
        *links = provide_links(bus, &self.host.dev, rules)?;
        manager::add_device_allow(bus, unit, &entries)?;
        Ok(UnitOutcome::Added {
            entries: entries.len(),
        })
    }
}

/// The entries that a unit lacks. Since an entry takes the place of one for the
/// same path, it has the old one's letters too.
fn missing(policy: &DevicePolicy, rules: &[DeviceRule]) -> Vec<DeviceAllow> {
    let entry = |rule: &DeviceRule| {
        let path = dev_links::path(rule);
        let old = policy.allowed.iter().find(|(known, _)| *known == path);
        let old = old.and_then(|(_, letters)| Access::parse(letters).ok());
        match old {
            Some(old) if old.contains(rule.access()) => None,
            Some(old) => Some((path, old.union(rule.access()).to_string())),
            None => Some((path, rule.access().to_string())),
        }
    };
    rules.iter().filter_map(entry).collect()
}

/// Makes the links that are missing, if this systemd needs them.
fn provide_links(
    bus: &mut Connection,
    dev: &Path,
    rules: &[DeviceRule],
) -> Result<Vec<LinkReport>, BusError> {
    let mut missing = rules
        .iter()
        .filter(|rule| !dev_links::exists(dev, rule))
        .peekable();
    if missing.peek().is_none() {
        return Ok(Vec::new());
    }
    // Of an unknown version the better is thought: links are never harmful,
    // but nobody wants them without need.
    let version = manager::version(bus)?;
    if version.is_none_or(|version| version >= dev_links::NOT_NEEDED_SINCE) {
        return Ok(Vec::new());
    }
    Ok(missing
        .map(|rule| match dev_links::make(dev, rule) {
            Ok(path) => LinkReport::Made(path),
            Err(error) => LinkReport::Missing {
                path: dev_links::path(rule).into(),
                reason: error.to_string(),
            },
        })
        .collect())
}

/// What errors of systemd mean that are no failures.
fn refusal(error: &BusError) -> Option<UnitOutcome> {
    let BusError::Call { name, .. } = error else {
        return None;
    };
    match name.as_str() {
        "org.freedesktop.systemd1.NoSuchUnit"
        | "org.freedesktop.DBus.Error.UnknownObject"
        | "org.freedesktop.DBus.Error.UnknownInterface" => Some(UnitOutcome::UnknownUnit),
        "org.freedesktop.DBus.Error.ServiceUnknown"
        | "org.freedesktop.DBus.Error.NameHasNoOwner" => Some(UnitOutcome::NoSystemd),
        "org.freedesktop.DBus.Error.AccessDenied"
        | "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired" => {
            Some(UnitOutcome::NoPermission)
        }
        _ => None,
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
            Self::Added { entries } => write!(f, "{entries} entries added to DeviceAllow"),
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
            Self::Made(path) => write!(f, "{} made for an old systemd", path.display()),
            Self::Missing { path, reason } => {
                write!(f, "{} is missing: {reason}", path.display())
            }
        }
    }
}
