//! Finds the candidates of one `[[discover]]` table: the paths on the host that match its pattern,
//! each with its attributes. A candidate becomes a device if it meets the conditions of the table.

use std::fmt;
use std::path::PathBuf;

use super::attributes::{self, FileReader, ReadError};
use super::{MAX_DEVICES, search};
use crate::class::{Condition, Source, SymlinkRule, ValueConstraint};
use crate::driver_properties::DriverProperties;
use crate::host::HostView;
use crate::name::{AttributeName, excerpt};
use crate::template::Attributes;

/// A path that matches a `[[discover]]` table, with its attributes. It becomes a device if it meets
/// the conditions of the table.
#[derive(Debug, Clone)]
pub(super) struct DeviceCandidate {
    /// The path that matched. `None` for a virtual device.
    pub(super) path: Option<PathBuf>,
    pub(super) attributes: Attributes,
}

impl fmt::Display for DeviceCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display()),
            None => f.write_str("a virtual device"),
        }
    }
}

/// The paths that match a pattern of `[[discover]]` but do not meet a condition of `require`, so
/// that they are not devices.
#[derive(Debug, Clone, Default)]
pub struct RefusedCandidates {
    pub count: usize,
    /// Descriptions of the first few refused candidates: the path, the condition that is not met,
    /// and the actual value.
    pub descriptions: Vec<String>,
}

impl RefusedCandidates {
    /// The maximum number of refused candidates that are described. Further refused candidates are
    /// only counted.
    const MAX_DESCRIPTIONS: usize = 8;

    fn add(&mut self, reason: impl FnOnce() -> String) {
        self.count += 1;
        if self.descriptions.len() < Self::MAX_DESCRIPTIONS {
            self.descriptions.push(reason());
        }
    }
}

/// Finds the candidates of one `[[discover]]` table that meet its conditions. A path that does not
/// meet a condition is added to `refused_candidates`. A path whose attributes cannot be read is
/// left out with a warning.
pub(super) fn find_candidates(
    source: &Source,
    host_attributes: &Attributes,
    properties: &DriverProperties,
    host: &dyn HostView,
    warnings: &mut Vec<String>,
    refused_candidates: &mut RefusedCandidates,
) -> Vec<DeviceCandidate> {
    let mut candidates = match &source.path {
        None => list_virtual_devices(source.virtual_device_count.unwrap_or(0), host_attributes),
        Some(pattern) => {
            match search::find_matches(pattern, host_attributes, host, MAX_DEVICES + 1) {
                Ok(matches) => matches
                    .into_iter()
                    .filter(|path_match| match source.symlink_rule {
                        None => true,
                        Some(SymlinkRule::Required) => host.is_link(&path_match.path),
                        Some(SymlinkRule::Refused) => !host.is_link(&path_match.path),
                    })
                    .map(|path_match| DeviceCandidate {
                        path: Some(path_match.path),
                        attributes: path_match.attributes,
                    })
                    .collect(),
                Err(error) => {
                    warnings.push(format!("{pattern}: {error}"));
                    Vec::new()
                }
            }
        }
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
    candidates.retain_mut(
        |candidate| match read_candidate(source, candidate, properties, host) {
            Ok(None) => true,
            Ok(Some(condition)) => {
                refused_candidates.add(|| {
                    format!(
                        "{candidate}: {}",
                        describe_unmet_condition(condition, &candidate.attributes)
                    )
                });
                false
            }
            Err(read_error) => {
                warnings.push(format!("{candidate}: {read_error}"));
                false
            }
        },
    );
    candidates
}

fn list_virtual_devices(count: u16, host_attributes: &Attributes) -> Vec<DeviceCandidate> {
    let Ok(name) = AttributeName::try_from("index".to_owned()) else {
        return Vec::new();
    };
    let candidates = (0..count).map(|index| {
        let mut attributes = host_attributes.clone();
        attributes.insert(name.clone(), index.to_string());
        DeviceCandidate {
            path: None,
            attributes,
        }
    });
    candidates.collect()
}

/// Reads the attributes of a candidate. Each condition is tested as soon as its attributes are
/// known, so that few files are read for a candidate that is not a device. Returns the first
/// condition that the candidate does not meet. Returns `None` if the candidate meets all
/// conditions.
fn read_candidate<'s>(
    source: &'s Source,
    candidate: &mut DeviceCandidate,
    properties: &DriverProperties,
    host: &dyn HostView,
) -> Result<Option<&'s Condition>, ReadError> {
    let mut untested_conditions: Vec<&'s Condition> = source.require.iter().collect();
    let mut unread_sources = source.attributes.as_slice();
    let mut reader = FileReader::new(host);
    loop {
        let mut unmet_condition = None;
        untested_conditions.retain(|&condition| {
            let needs_unread_source = condition.attributes().any(|name| {
                let is_known = candidate.attributes.contains_key(name);
                unread_sources
                    .iter()
                    .any(|source| source.sets_attribute(name, is_known))
            });
            if !needs_unread_source
                && unmet_condition.is_none()
                && !is_condition_met(condition, &candidate.attributes, host)
            {
                unmet_condition = Some(condition);
            }
            needs_unread_source
        });
        if unmet_condition.is_some() {
            return Ok(unmet_condition);
        }
        let Some((next_source, remaining)) = unread_sources.split_first() else {
            return Ok(None);
        };
        let attributes = std::mem::take(&mut candidate.attributes);
        let next_source = std::slice::from_ref(next_source);
        let base_path = candidate.path.as_deref();
        candidate.attributes = attributes::read_attributes(
            next_source,
            base_path,
            attributes,
            properties,
            &mut reader,
        )?;
        unread_sources = remaining;
    }
}

/// Returns a message that explains why a candidate does not meet a condition, such as "{vendor} is
/// `0x1234`, not `0x5678`".
fn describe_unmet_condition(condition: &Condition, attributes: &Attributes) -> String {
    match condition {
        Condition::Value { value, expected } => {
            let actual_value = value.fill(attributes).unwrap_or_default();
            format!(
                "{value} is `{}`{}",
                excerpt(&actual_value),
                describe_expected_values(expected)
            )
        }
        Condition::PathExists(pattern) => format!("nothing matches {pattern}"),
        Condition::PathAbsent(pattern) => format!("something matches {pattern}"),
    }
}

/// Returns the end of a message about an unexpected value, such as ", not `1` or `2`". For `NoneOf`
/// it is empty, because the message already contains the refused value.
pub(super) fn describe_expected_values(expected: &ValueConstraint) -> String {
    match expected {
        ValueConstraint::OneOf(values) => format!(", not `{}`", values.join("` or `")),
        ValueConstraint::NoneOf(_) => String::new(),
    }
}

/// Returns whether a candidate with these attributes meets a condition. A condition about an
/// attribute that the candidate lacks is not met.
pub(super) fn is_condition_met(
    condition: &Condition,
    attributes: &Attributes,
    host: &dyn HostView,
) -> bool {
    match condition {
        Condition::Value { value, expected } => value
            .fill(attributes)
            .is_ok_and(|value| expected.accepts(&value)),
        Condition::PathExists(pattern) => search::has_match(pattern, attributes, host),
        Condition::PathAbsent(pattern) => !search::has_match(pattern, attributes, host),
    }
}
