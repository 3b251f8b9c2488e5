//! Adds devices to the units of systemd.
//!
//! systemd regenerates the device rules of a unit from its own record on various occasions,
//! such as `daemon-reload`. Rules that are only in the cgroup are then lost, or overruled by a
//! second program. Therefore the rules are first added to `DeviceAllow=` of the unit at run
//! time, without a file that would persist over a boot.

mod connection;
mod dev_links;
mod error;
mod manager;
mod message;
mod reply;
#[cfg(test)]
mod tests;
mod unit;
mod unit_report;

use std::path::{Path, PathBuf};

pub(crate) use connection::Sockets;
pub(crate) use error::{BusError, SystemdError};
pub(crate) use unit::Unit;
pub(crate) use unit_report::{LinkReport, SystemdReport, UnitOutcome};

use super::rule::{self, Access, DeviceRule};
use connection::Connection;
use manager::{DeviceAllow, DevicePolicy};

/// The sockets of the host's systemd, and its `/dev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostSystemd {
    pub sockets: Sockets,
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

/// A connection to systemd, for any number of units.
pub(super) struct Systemd {
    host: HostSystemd,
    bus: Option<Connection>,
}

impl Systemd {
    pub(super) fn new(host: HostSystemd) -> Self {
        Self { host, bus: None }
    }

    /// Adds `rules` to the devices that `unit` allows, if the unit restricts devices at all.
    ///
    /// # Errors
    ///
    /// The call fails if systemd refuses, or does not answer within two seconds. The device
    /// can be used nevertheless once the rules of the cgroup are set, until systemd
    /// regenerates them.
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
            Err(error) => match find_refusal_outcome(&error) {
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

    /// Removes `rules` from the devices that the container's own `unit` allows. Returns false
    /// if the unit does not list them, or if no systemd knows the unit.
    ///
    /// # Errors
    /// The call fails for the same reasons as [`Self::allow`].
    pub(super) fn revoke(
        &mut self,
        unit: &Unit,
        rules: &[DeviceRule],
    ) -> Result<bool, SystemdError> {
        match self.try_revoke(unit, rules) {
            Err(error) if find_refusal_outcome(&error).is_none() => Err(SystemdError {
                unit: unit.clone(),
                source: error,
            }),
            done => Ok(done.unwrap_or(false)),
        }
    }

    fn try_revoke(&mut self, unit: &Unit, rules: &[DeviceRule]) -> Result<bool, BusError> {
        let Some(bus) = self.connection()? else {
            return Ok(false);
        };
        let (policy, _) = manager::read_device_policy(bus, unit)?;
        let paths: Vec<String> = rules.iter().map(dev_links::link_path).collect();
        let mut remaining = policy.allowed.clone();
        remaining.retain(|(path, _)| !paths.contains(path));
        // An empty list with the policy `auto` would allow every device.
        let is_open = remaining.is_empty() && policy.policy == "auto";
        if remaining.len() == policy.allowed.len() || is_open {
            return Ok(false);
        }
        manager::set_device_allow(bus, unit, &remaining)?;
        Ok(true)
    }

    fn connection(&mut self) -> Result<Option<&mut Connection>, BusError> {
        if self.bus.is_none() {
            self.bus = Connection::open(&self.host.sockets)?;
        }
        Ok(self.bus.as_mut())
    }

    fn try_allow(
        &mut self,
        unit: &Unit,
        rules: &[DeviceRule],
        links: &mut Vec<LinkReport>,
    ) -> Result<UnitOutcome, BusError> {
        let dev = self.host.dev.clone();
        let Some(bus) = self.connection()? else {
            return Ok(UnitOutcome::NoSystemd);
        };
        let (policy, version) = manager::read_device_policy(bus, unit)?;
        if !policy.restricts_devices() {
            return Ok(UnitOutcome::Unrestricted);
        }
        let entries = compute_missing_entries(&policy, rules);
        if entries.is_empty() {
            return Ok(UnitOutcome::AlreadyAllowed);
        }
        *links = create_missing_links(version, &dev, rules);
        manager::add_device_allow(bus, unit, &entries)?;
        Ok(UnitOutcome::Added {
            entries: entries.len(),
        })
    }
}

/// Returns the entries that the unit lacks. An entry replaces an earlier one for the same
/// path, so it includes the letters of the earlier one.
fn compute_missing_entries(policy: &DevicePolicy, rules: &[DeviceRule]) -> Vec<DeviceAllow> {
    let entry = |rule: &DeviceRule| {
        let path = dev_links::link_path(rule);
        let old = policy
            .allowed
            .iter()
            .find(|(known, _)| *known == path)
            .and_then(|(_, letters)| Access::parse(letters).ok());
        match old {
            Some(old) if old.contains(rule.access()) => None,
            Some(old) => Some((path, old.union(rule.access()).to_string())),
            None => Some((path, rule.access().to_string())),
        }
    };
    rules.iter().filter_map(entry).collect()
}

/// Creates the missing links if this version of systemd needs them.
fn create_missing_links(version: Option<u32>, dev: &Path, rules: &[DeviceRule]) -> Vec<LinkReport> {
    // An unknown version counts as new. Links do no harm, but files on the host are not
    // created without need.
    if version.is_none_or(|version| version >= dev_links::FIRST_VERSION_WITHOUT_LINKS) {
        return Vec::new();
    }
    let missing = rules
        .iter()
        .filter(|rule| !dev_links::link_exists(dev, rule));
    missing
        .map(|rule| match dev_links::create_link(dev, rule) {
            Ok(path) => LinkReport::Created(path),
            Err(error) => LinkReport::Missing {
                path: dev_links::link_path(rule).into(),
                reason: error.to_string(),
            },
        })
        .collect()
}

/// Returns the outcome for an error that is not a failure, and `None` for other errors.
fn find_refusal_outcome(error: &BusError) -> Option<UnitOutcome> {
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
