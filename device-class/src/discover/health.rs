//! Whether a device can be given to a container.

use std::path::PathBuf;
use std::time::Duration;

use super::source::Candidate;
use super::{FoundNode, Presence, attributes, search};
use crate::class::{FileRule, HealthCheck};
use crate::host::{HostView, MAX_ATTRIBUTE};
use crate::name::excerpt;

/// Whether a device can be given to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Every check of its class holds.
    Healthy,
    /// A check does not hold.
    Unhealthy {
        /// Which, for people.
        reason: String,
    },
}

impl Health {
    /// Whether every check holds.
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

/// What has to be compared with earlier looks: see [`super::HealthMemory`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The file.
    pub path: PathBuf,
    /// The number in it.
    pub number: i64,
    /// What has to hold over time.
    pub rule: OverTime,
}

/// What has to hold for a number over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverTime {
    /// Once it was too high, it has to fall well below.
    Recovers {
        /// The first number that is too high.
        limit: i64,
        /// Below this it is all right again.
        again_below: i64,
    },
    /// It changes at least this often.
    AdvancesWithin(Duration),
}

/// The health at one look, and what is to be remembered. The first fault
/// decides: a node that can't be given, then the checks.
pub(super) fn of<'a>(
    checks: impl Iterator<Item = &'a HealthCheck>,
    nodes: &[FoundNode],
    candidate: &Candidate,
    host: &dyn HostView,
) -> (Health, Vec<Reading>) {
    let unfit = nodes.iter().find_map(|node| match &node.number {
        Presence::Unfit(reason) => Some(reason.clone()),
        Presence::Found(_) | Presence::Optional => None,
    });
    let mut readings = Vec::new();
    let mut faults = checks.filter_map(|check| test(check, candidate, host, &mut readings).err());
    let fault = unfit.or_else(|| faults.next());
    let health = match fault {
        None => Health::Healthy,
        Some(reason) => Health::Unhealthy { reason },
    };
    (health, readings)
}

/// Tests one check; its error is the fault, for people.
fn test(
    check: &HealthCheck,
    candidate: &Candidate,
    host: &dyn HostView,
    readings: &mut Vec<Reading>,
) -> Result<(), String> {
    let (file, rule) = match check {
        HealthCheck::File { file, rule } => (file, rule),
        HealthCheck::Exists(pattern) => {
            let there = search::any(pattern, &candidate.attributes, host);
            return there
                .then_some(())
                .ok_or_else(|| format!("{pattern} is not there"));
        }
    };
    let base = candidate.path.as_deref();
    let path = attributes::located(file, base, &candidate.attributes)
        .map_err(|error| error.to_string())?;
    let bytes = host
        .read(&path, MAX_ATTRIBUTE)
        .map_err(|error| format!("{} can't be read: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let value = text.trim();
    let number = || {
        let excerpt = excerpt(value);
        value
            .parse::<i64>()
            .map_err(|_| format!("{} is no number: {excerpt}", path.display()))
    };
    match rule {
        FileRule::Expected(expected) if expected.holds(value) => Ok(()),
        FileRule::Expected(_) => Err(format!("{} is `{}`", path.display(), excerpt(value))),
        FileRule::Below { limit, again_below } => {
            let number = number()?;
            let fault = format!("{} is {number}, not below {limit}", path.display());
            readings.push(Reading {
                path,
                number,
                rule: OverTime::Recovers {
                    limit: *limit,
                    again_below: *again_below,
                },
            });
            (number < *limit).then_some(()).ok_or(fault)
        }
        FileRule::Advances { within } => {
            let (number, rule) = (number()?, OverTime::AdvancesWithin(*within));
            readings.push(Reading { path, number, rule });
            Ok(())
        }
    }
}
