//! Finds the candidates for devices of one `[[discover]]` table: the paths of the host that match
//! it, with their attributes.

use std::fmt;
use std::path::PathBuf;

use super::attributes::{self, Files, ReadError};
use super::{MAX_DEVICES, search};
use crate::class::{Condition, Expectation, Source, SymlinkRule};
use crate::facts::Facts;
use crate::host::HostView;
use crate::name::{AttributeName, excerpt};
use crate::template::Attributes;

/// A path that matches a `[[discover]]` table and may be a device, with its attributes.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// The path that matched; `None` for a virtual device.
    pub(super) path: Option<PathBuf>,
    pub(super) attributes: Attributes,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display()),
            None => f.write_str("a virtual device"),
        }
    }
}

/// The candidates that are not devices, because a condition of `require` does not hold.
#[derive(Debug, Clone, Default)]
pub struct RefusedCandidates {
    pub count: usize,
    /// Descriptions of the first refused candidates: path, condition, and the actual value.
    pub first: Vec<String>,
}

impl RefusedCandidates {
    /// The maximum number of refused candidates that are described. Further ones are only counted.
    const MAX_DESCRIBED: usize = 8;

    fn add(&mut self, reason: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < Self::MAX_DESCRIBED {
            self.first.push(reason());
        }
    }
}

pub(super) fn candidates(
    source: &Source,
    known: &Attributes,
    facts: &Facts,
    host: &dyn HostView,
    warnings: &mut Vec<String>,
    refused: &mut RefusedCandidates,
) -> Vec<Candidate> {
    let mut candidates = match &source.path {
        None => virtual_devices(source.count.unwrap_or(0), known),
        Some(pattern) => match search::matches(pattern, known, host, MAX_DEVICES + 1) {
            Ok(found) => found
                .into_iter()
                .filter(|m| match source.symlink {
                    None => true,
                    Some(SymlinkRule::Required) => host.is_link(&m.path),
                    Some(SymlinkRule::Refused) => !host.is_link(&m.path),
                })
                .map(|m| Candidate {
                    path: Some(m.path),
                    attributes: m.attributes,
                })
                .collect(),
            Err(error) => {
                warnings.push(format!("{pattern}: {error}"));
                Vec::new()
            }
        },
    };
    if candidates.len() > MAX_DEVICES {
        candidates.truncate(MAX_DEVICES);
        let pattern = source
            .path
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        warnings.push(format!(
            "{pattern} matches more than {MAX_DEVICES} paths; the rest is left out, so narrow the glob"
        ));
    }
    candidates.retain_mut(|candidate| match complete(source, candidate, facts, host) {
        Ok(None) => true,
        Ok(Some(condition)) => {
            refused.add(|| {
                format!(
                    "{candidate}: {}",
                    describe_unmet(condition, &candidate.attributes)
                )
            });
            false
        }
        Err(unread) => {
            warnings.push(format!("{candidate}: {unread}"));
            false
        }
    });
    candidates
}

fn virtual_devices(count: u16, known: &Attributes) -> Vec<Candidate> {
    let Ok(name) = AttributeName::try_from("index".to_owned()) else {
        return Vec::new();
    };
    let numbered = (0..count).map(|index| {
        let mut attributes = known.clone();
        attributes.insert(name.clone(), index.to_string());
        Candidate {
            path: None,
            attributes,
        }
    });
    numbered.collect()
}

/// Reads the attributes of a candidate. Each condition is tested as soon as its attributes are known,
/// so that only few files are read for a candidate that is not a device. Returns the first condition
/// that the candidate does not meet, or `None` if the candidate is a device.
fn complete<'s>(
    source: &'s Source,
    candidate: &mut Candidate,
    facts: &Facts,
    host: &dyn HostView,
) -> Result<Option<&'s Condition>, ReadError> {
    let mut untested: Vec<&'s Condition> = source.require.iter().collect();
    let mut unread = source.attributes.as_slice();
    let mut files = Files::new(host);
    loop {
        let mut unmet = None;
        untested.retain(|&condition| {
            let waits = condition.attributes().any(|name| {
                let known = candidate.attributes.contains_key(name);
                unread.iter().any(|source| source.sets(name, known))
            });
            if !waits && unmet.is_none() && !holds(condition, &candidate.attributes, host) {
                unmet = Some(condition);
            }
            waits
        });
        if unmet.is_some() {
            return Ok(unmet);
        }
        let Some((next, rest)) = unread.split_first() else {
            return Ok(None);
        };
        let known = std::mem::take(&mut candidate.attributes);
        let next = std::slice::from_ref(next);
        let base = candidate.path.as_deref();
        candidate.attributes = attributes::read(next, base, known, facts, &mut files)?;
        unread = rest;
    }
}

/// Returns a message about the reason why a candidate does not meet a condition.
fn describe_unmet(condition: &Condition, attributes: &Attributes) -> String {
    match condition {
        Condition::Value { value, expected } => {
            let found = value.fill(attributes).unwrap_or_default();
            format!(
                "{value} is `{}`{}",
                excerpt(&found),
                describe_expected_values(expected)
            )
        }
        Condition::Exists(pattern) => format!("nothing matches {pattern}"),
        Condition::Absent(pattern) => format!("something matches {pattern}"),
    }
}

/// Returns the end of a message about an unexpected value, with the values that were expected. The
/// text is empty for `NoneOf`, because there the unexpected value itself is the reason.
pub(super) fn describe_expected_values(expected: &Expectation) -> String {
    match expected {
        Expectation::OneOf(wanted) => format!(", not `{}`", wanted.join("` or `")),
        Expectation::NoneOf(_) => String::new(),
    }
}

/// Returns whether a candidate with these attributes meets a condition.
pub(super) fn holds(condition: &Condition, attributes: &Attributes, host: &dyn HostView) -> bool {
    match condition {
        Condition::Value { value, expected } => value
            .fill(attributes)
            .is_ok_and(|value| expected.holds(&value)),
        Condition::Exists(pattern) => search::any(pattern, attributes, host),
        Condition::Absent(pattern) => !search::any(pattern, attributes, host),
    }
}
