//! Checks the health of a device at one scan.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::source::{Candidate, other_than};
use super::{Device, FoundNode, Inventory, Presence, attributes, search};
use crate::class::{
    DeviceClass, FileRule, HealthCheck, HealthProgram, HealthTest, LoggedFaults, Origin, Text,
};
use crate::host::{HostView, MAX_ATTRIBUTE};
use crate::inserted;
use crate::name::{AttributeName, excerpt};
use crate::pattern::PathPattern;

/// Whether a device can be given to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Healthy,
    Unhealthy { reason: String },
}

impl Health {
    pub fn is_healthy(&self) -> bool {
        *self == Health::Healthy
    }
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Health::Healthy => f.write_str("healthy"),
            Health::Unhealthy { reason } => write!(f, "unhealthy: {reason}"),
        }
    }
}

/// A value that one health check read, and that a [`super::HealthHistory`] compares with
/// earlier scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The position of the check among the checks of the device, from 0.
    pub check: usize,
    /// The file or pattern that the check reads, for messages.
    pub of: String,
    pub rule: OverTime,
}

/// A rule that needs more than one scan, or the memory of earlier events, to be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverTime {
    /// A number that has reached `limit` makes the device unhealthy until it falls below
    /// `recovers_below`. The gap keeps a number near the limit from changing the health at each
    /// scan.
    Recovers {
        number: i64,
        /// The lowest number that is too high.
        limit: i64,
        /// The device is healthy again once the number is lower than this.
        recovers_below: i64,
    },
    /// A number, such as a heartbeat, that must keep changing.
    Advances {
        number: i64,
        /// The longest time for which the number may stay the same.
        within: Duration,
    },
    /// The kernel's log must have no record of these faults.
    Unlogged {
        /// The beginning of the record, up to the number of the fault.
        line: String,
        faults: LoggedFaults,
        /// The advice for an administrator about a line of this kind.
        advice: Option<String>,
    },
    /// A program of the host reports whether the device is healthy. The caller runs it: see
    /// [`super::HealthCommand`].
    Program {
        program: HealthProgram,
        /// The place of the program on this host, if the class's path has none.
        place: Option<super::HostProgram>,
        /// The advice for an administrator who repairs the device.
        advice: Option<String>,
    },
    /// A new outcome of the check counts only after it has lasted for some time, so that a
    /// value that flickers does not change the health.
    Steady {
        /// The fault that this scan found; `None` means that the check passed.
        fault: Option<String>,
        /// The time for which a new outcome must last.
        lasting: Duration,
    },
}

/// Checks the health of a device at one scan. Returns the health as far as one scan shows it,
/// the readings that a [`super::HealthHistory`] has to judge, and the reason if the device can
/// be used in parts only. The first fault gives the reason; an unusable node comes before all
/// checks.
pub(super) fn check_device<'a>(
    checks: impl Iterator<Item = &'a HealthCheck>,
    nodes: &[FoundNode],
    candidate: &Candidate,
    host: &dyn HostView,
) -> (Health, Vec<Reading>, Option<String>) {
    let unfit = nodes.iter().find_map(|node| match &node.number {
        Presence::Unfit(reason) => Some(reason.clone()),
        Presence::Found(_) | Presence::Optional => None,
    });
    let mut readings = Vec::new();
    let (mut fault, mut only_in_parts) = (unfit, None);
    for (number, check) in checks.enumerate() {
        let (of, rule, failed) = look(check, candidate, host);
        readings.extend(rule.map(|rule| {
            let check = number;
            Reading { check, of, rule }
        }));
        match check.of_whole {
            true => only_in_parts = only_in_parts.or(failed),
            false => fault = fault.or(failed),
        }
    }
    let health = match fault {
        None => Health::Healthy,
        Some(reason) => Health::Unhealthy { reason },
    };
    (health, readings, only_in_parts)
}

/// Runs one check. Returns what the check reads, for messages; the rule that has to be judged
/// over several scans, if there is one; and the fault that this scan alone shows.
fn look(
    check: &HealthCheck,
    candidate: &Candidate,
    host: &dyn HostView,
) -> (String, Option<OverTime>, Option<String>) {
    let advice = check.advice.as_ref();
    let advice = advice.map(|advice| attributes::fill_advice(advice, &candidate.attributes));
    let (of, (rule, fault)) = match &check.test {
        HealthTest::Exists(pattern) => {
            let fault = exists(pattern, candidate, host).err();
            (pattern.to_string(), (None, fault))
        }
        HealthTest::Value { value, expected } => {
            let fault = match value.fill(&candidate.attributes) {
                Ok(found) => (!expected.holds(&found)).then(|| {
                    let of: Vec<&str> = value.attributes().map(AttributeName::as_str).collect();
                    let of = of.join(" ");
                    format!("{of} is `{}`{}", excerpt(&found), other_than(expected))
                }),
                Err(error) => Some(error.to_string()),
            };
            (value.to_string(), (None, fault))
        }
        HealthTest::File { file, rule } => {
            let base = candidate.path.as_deref();
            match attributes::resolve_path(file, base, &candidate.attributes) {
                Ok(path) => (path.display().to_string(), read(&path, rule, host)),
                Err(error) => (file.to_string(), (None, Some(error.to_string()))),
            }
        }
        HealthTest::Program(program) => {
            let of = program.command.first().map(ToString::to_string);
            let rule = OverTime::Program {
                program: program.clone(),
                place: None,
                advice: advice.clone(),
            };
            (of.unwrap_or_default(), (Some(rule), None))
        }
        HealthTest::Unlogged { line, faults } => match line.fill(&candidate.attributes) {
            Ok(line) => {
                let rule = OverTime::Unlogged {
                    line: line.clone(),
                    faults: faults.clone(),
                    advice: advice.clone(),
                };
                (line, (Some(rule), None))
            }
            Err(error) => (line.to_string(), (None, Some(error.to_string()))),
        },
    };
    let fault = match &advice {
        Some(advice) => fault.map(|fault| format!("{fault}; {advice}")),
        None => fault,
    };
    match check.steady_for {
        Some(lasting) => (of, Some(OverTime::Steady { fault, lasting }), None),
        None => (of, rule, fault),
    }
}

/// Whether a check of a value that a driver's program reported fails for one of the devices,
/// apart from checks that do not concern their parts.
pub fn is_unhealthy_by_facts(class: &DeviceClass, inventory: &Inventory) -> bool {
    let sources = &class.spec.discover;
    let attributes = sources.iter().flat_map(|source| &source.attributes);
    let facts = attributes.filter_map(|source| match &source.origin {
        Origin::Text {
            name,
            text: Text::Fact(_),
            ..
        } => Some(name),
        _ => None,
    });
    let facts: BTreeSet<&AttributeName> = inserted(facts);
    let of_sources = sources.iter().flat_map(|source| &source.health);
    let mut checks = class.spec.device.health.iter().chain(of_sources);
    checks.any(|check| match &check.test {
        HealthTest::Value { value, expected } if !check.of_whole => {
            let fails = |device: &Device| {
                let value = value.fill(&device.attributes);
                value.is_ok_and(|value| !expected.holds(&value))
            };
            value.attributes().any(|name| facts.contains(name))
                && inventory.devices.iter().any(fails)
        }
        _ => false,
    })
}

/// Returns the files whose leading bytes tell whether a device answers, each with the bytes
/// that mean that it does not.
pub fn list_byte_checks(class: &DeviceClass, device: &Device) -> Vec<(PathBuf, Vec<u8>)> {
    let sources = class.spec.discover.iter();
    let of_sources = sources.flat_map(|source| &source.health);
    let checks = class.spec.device.health.iter().chain(of_sources);
    let files = checks.filter_map(|check| match &check.test {
        HealthTest::File {
            file,
            rule: FileRule::NotBytes(refused),
        } => {
            let path = PathBuf::from(file.fill(&device.attributes).ok()?);
            path.is_absolute().then(|| (path, refused.clone()))
        }
        _ => None,
    });
    files.collect()
}

fn exists(pattern: &PathPattern, candidate: &Candidate, host: &dyn HostView) -> Result<(), String> {
    match search::any(pattern, &candidate.attributes, host) {
        true => Ok(()),
        false => {
            let text = attributes::fill_advice(&pattern.to_string(), &candidate.attributes);
            Err(format!("{text} does not exist"))
        }
    }
}

/// Reads a file and applies the rule of a check. Returns the rule that has to be judged over
/// several scans, and the fault that this scan alone shows.
fn read(path: &Path, rule: &FileRule, host: &dyn HostView) -> (Option<OverTime>, Option<String>) {
    // The file may be the PCI configuration space, of which the kernel reads each word from the
    // device. Reading all of it takes milliseconds, and tens of milliseconds in a virtual
    // machine, so only the bytes that are compared are read.
    let limit = match rule {
        FileRule::NotBytes(refused) => refused.len(),
        _ => MAX_ATTRIBUTE,
    };
    let text = match host.read(path, limit) {
        Ok(bytes) if matches!(rule, FileRule::NotBytes(refused) if bytes.starts_with(refused)) => {
            let fault = format!(
                "{} reads as that of a device that no longer answers",
                path.display()
            );
            return (None, Some(fault));
        }
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            let fault = format!("{} cannot be read: {error}", path.display());
            return (None, Some(fault));
        }
    };
    // Strings in the device tree end with a NUL byte.
    let value = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    match (rule, value.parse()) {
        (FileRule::Expected(expected), _) => {
            let (of, found) = (path.display(), excerpt(value));
            let fault = || format!("{of} is `{found}`{}", other_than(expected));
            (None, (!expected.holds(value)).then(fault))
        }
        (FileRule::NotBytes(_), _) => (None, None),
        (_, Err(_)) => {
            let fault = format!("{} is not a number: {}", path.display(), excerpt(value));
            (None, Some(fault))
        }
        (
            &FileRule::Below {
                limit,
                recovers_below,
            },
            Ok(number),
        ) => {
            let recovers = OverTime::Recovers {
                number,
                limit,
                recovers_below,
            };
            let fault = || format!("{} is {number}, not below {limit}", path.display());
            (Some(recovers), (number >= limit).then(fault))
        }
        (&FileRule::Advances { within }, Ok(number)) => {
            (Some(OverTime::Advances { number, within }), None)
        }
    }
}
