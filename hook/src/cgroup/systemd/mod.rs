//! Adds devices to `DeviceAllow=` of systemd units.
//!
//! On various occasions, such as `daemon-reload`, systemd writes the device rules of a unit to its
//! cgroup again. Rules that are only in the cgroup are then lost, or systemd attaches a second
//! device program that denies their devices. So the devices are first added to `DeviceAllow=` of
//! the unit. The addition is a runtime property of systemd, which is lost at a reboot.

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

pub(crate) use connection::SystemdSockets;
pub(crate) use error::{BusError, SystemdError};
pub(crate) use unit::Unit;
pub(crate) use unit_report::{LinkReport, SystemdReport, UnitOutcome};

use super::rule::{self, Access, DeviceRule};
use connection::Connection;
use manager::{DeviceAllowEntry, DevicePolicy};

/// The paths of the host's systemd: its D-Bus sockets, and the `/dev` directory in which it looks
/// up device nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SystemdPaths {
    pub sockets: SystemdSockets,
    pub dev_dir: PathBuf,
}

impl Default for SystemdPaths {
    fn default() -> Self {
        Self {
            sockets: SystemdSockets::default(),
            dev_dir: "/dev".into(),
        }
    }
}

/// Changes systemd units over one D-Bus connection, which is opened at the first change.
pub(super) struct SystemdClient {
    host: SystemdPaths,
    connection: Option<Connection>,
}

impl SystemdClient {
    pub(super) fn new(host: SystemdPaths) -> Self {
        Self {
            host,
            connection: None,
        }
    }

    /// Adds the devices of `rules` to `DeviceAllow=` of `unit`. Does nothing if the unit does not
    /// restrict devices.
    ///
    /// # Errors
    ///
    /// Fails if systemd refuses the change, or does not answer within two seconds. The caller can
    /// still set the rules of the cgroup. They last until systemd writes the rules of the unit
    /// again.
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
        let result = self.try_allow(unit, &rule::merge_by_device(rules), &mut report.links);
        report.outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => match to_expected_outcome(&error) {
                Some(outcome) => outcome,
                None => {
                    self.connection = None;
                    return Err(SystemdError {
                        unit: unit.clone(),
                        source: error,
                    });
                }
            },
        };
        Ok(report)
    }

    /// Removes the devices of `rules` from `DeviceAllow=` of `unit`. Returns whether the unit was
    /// changed. The unit is not changed if it lists none of the devices, or if systemd does not
    /// know it. It is also not changed if the shorter list would allow every device.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`Self::allow`].
    pub(super) fn revoke(
        &mut self,
        unit: &Unit,
        rules: &[DeviceRule],
    ) -> Result<bool, SystemdError> {
        match self.try_revoke(unit, rules) {
            Err(error) if to_expected_outcome(&error).is_none() => Err(SystemdError {
                unit: unit.clone(),
                source: error,
            }),
            result => Ok(result.unwrap_or(false)),
        }
    }

    fn try_revoke(&mut self, unit: &Unit, rules: &[DeviceRule]) -> Result<bool, BusError> {
        let Some(connection) = self.open_connection()? else {
            return Ok(false);
        };
        let (policy, _) = manager::read_device_policy(connection, unit)?;
        let paths: Vec<String> = rules.iter().map(dev_links::device_allow_path).collect();
        let mut remaining_entries = policy.allow_entries.clone();
        remaining_entries.retain(|(path, _)| !paths.contains(path));
        // If `DevicePolicy=auto` is set, an empty `DeviceAllow=` would allow every device.
        let would_allow_all = remaining_entries.is_empty() && policy.policy == "auto";
        if remaining_entries.len() == policy.allow_entries.len() || would_allow_all {
            return Ok(false);
        }
        manager::set_device_allow(connection, unit, &remaining_entries)?;
        Ok(true)
    }

    fn open_connection(&mut self) -> Result<Option<&mut Connection>, BusError> {
        if self.connection.is_none() {
            self.connection = Connection::open(&self.host.sockets)?;
        }
        Ok(self.connection.as_mut())
    }

    fn try_allow(
        &mut self,
        unit: &Unit,
        rules: &[DeviceRule],
        links: &mut Vec<LinkReport>,
    ) -> Result<UnitOutcome, BusError> {
        let dev_dir = self.host.dev_dir.clone();
        let Some(connection) = self.open_connection()? else {
            return Ok(UnitOutcome::NoSystemd);
        };
        let (policy, version) = manager::read_device_policy(connection, unit)?;
        if !policy.restricts_devices() {
            return Ok(UnitOutcome::Unrestricted);
        }
        let entries = compute_missing_entries(&policy, rules);
        if entries.is_empty() {
            return Ok(UnitOutcome::AlreadyAllowed);
        }
        *links = create_missing_links(version, &dev_dir, rules);
        manager::add_device_allow(connection, unit, &entries)?;
        Ok(UnitOutcome::Added {
            entry_count: entries.len(),
        })
    }
}

/// Returns the entries that must be added to `DeviceAllow=` so that the unit allows the devices of
/// `rules`.
///
/// systemd replaces an existing entry for the same path. So a new entry also contains the access
/// letters of the existing one.
fn compute_missing_entries(policy: &DevicePolicy, rules: &[DeviceRule]) -> Vec<DeviceAllowEntry> {
    let compute_missing_entry = |rule: &DeviceRule| {
        let path = dev_links::device_allow_path(rule);
        let existing_access = policy
            .allow_entries
            .iter()
            .find(|(allowed_path, _)| *allowed_path == path)
            .and_then(|(_, letters)| Access::parse(letters).ok());
        match existing_access {
            Some(access) if access.contains(rule.access()) => None,
            Some(access) => Some((path, access.union(rule.access()).to_string())),
            None => Some((path, rule.access().to_string())),
        }
    };
    rules.iter().filter_map(compute_missing_entry).collect()
}

/// Creates the missing links in `/dev/char` and `/dev/block`, such as `/dev/char/10:183`. Creates
/// none if systemd does not need them to identify devices. `version` is the major version of
/// systemd.
fn create_missing_links(
    version: Option<u32>,
    dev_dir: &Path,
    rules: &[DeviceRule],
) -> Vec<LinkReport> {
    // An unknown version of systemd is treated as a recent one, so that no file is created in the
    // host's `/dev` unnecessarily.
    if version.is_none_or(|version| version >= dev_links::FIRST_VERSION_WITHOUT_LINK_LOOKUP) {
        return Vec::new();
    }
    let rules_without_link = rules
        .iter()
        .filter(|rule| !dev_links::link_exists(dev_dir, rule));
    rules_without_link
        .map(|rule| match dev_links::create_link(dev_dir, rule) {
            Ok(path) => LinkReport::Created(path),
            Err(error) => LinkReport::Missing {
                path: dev_links::device_allow_path(rule).into(),
                reason: error.to_string(),
            },
        })
        .collect()
}

/// Returns the outcome for a D-Bus error that is not reported as an error. It means that systemd is
/// not running, does not know the unit, or does not permit the change. Returns `None` for all other
/// errors.
fn to_expected_outcome(error: &BusError) -> Option<UnitOutcome> {
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
