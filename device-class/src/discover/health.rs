//! Whether a device can be given to a container.

use super::source::Candidate;
use super::{FoundNode, Presence, attributes, search};
use crate::class::HealthCheck;
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

/// The first fault decides: a node that can't be given, then the checks.
pub(super) fn of(
    checks: &[HealthCheck],
    nodes: &[FoundNode],
    candidate: &Candidate,
    host: &dyn HostView,
) -> Health {
    let unfit = nodes.iter().find_map(|node| match &node.number {
        Presence::Unfit(reason) => Some(reason.clone()),
        Presence::Found(_) | Presence::Optional => None,
    });
    match unfit.or_else(|| {
        checks
            .iter()
            .find_map(|check| fault(check, candidate, host))
    }) {
        None => Health::Healthy,
        Some(reason) => Health::Unhealthy { reason },
    }
}

fn fault(check: &HealthCheck, candidate: &Candidate, host: &dyn HostView) -> Option<String> {
    let read = |template| {
        let base = candidate.path.as_deref();
        let path = attributes::located(template, base, &candidate.attributes)
            .map_err(|error| error.to_string())?;
        let bytes = host
            .read(&path, MAX_ATTRIBUTE)
            .map_err(|error| format!("{} can't be read: {error}", path.display()))?;
        Ok::<_, String>((path, String::from_utf8_lossy(&bytes).trim().to_owned()))
    };
    match check {
        HealthCheck::Exists(pattern) => (!search::any(pattern, &candidate.attributes, host))
            .then(|| format!("{pattern} is not there")),
        HealthCheck::File { file, expected } => match read(file) {
            Err(reason) => Some(reason),
            Ok((_, value)) if expected.holds(&value) => None,
            Ok((path, value)) => Some(format!("{} is `{}`", path.display(), excerpt(&value))),
        },
        HealthCheck::Below { file, limit } => match read(file) {
            Err(reason) => Some(reason),
            Ok((path, value)) => match value.parse::<i64>() {
                Ok(number) if number < *limit => None,
                Ok(number) => Some(format!("{} is {number}, not below {limit}", path.display())),
                Err(_) => Some(format!(
                    "{} is no number: {}",
                    path.display(),
                    excerpt(&value)
                )),
            },
        },
    }
}
