//! Runs the health checks of a device for one scan of the host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::source::{DeviceCandidate, describe_expected_values};
use super::{Device, FoundNode, Inventory, PathLookup, attributes, search};
use crate::class::{
    AttributeOrigin, DeviceClass, FileRule, HealthCheck, HealthProgram, HealthTest, LoggedFaults,
    TextSource,
};
use crate::collect_by_insertion;
use crate::host::{HostView, MAX_ATTRIBUTE_BYTES};
use crate::name::{AttributeName, excerpt};
use crate::pattern::PathPattern;

/// The health of a device. Containers get only healthy devices.
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

/// The result of one health check in one scan, such as a number in a file. [`super::HealthHistory`]
/// compares it with earlier scans, or the caller runs a program to complete it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferredCheck {
    /// The position of the check in the list of the device's checks, from 0.
    pub check_number: usize,
    /// The file or pattern that the check reads. Messages show it.
    pub source: String,
    pub rule: DeferredRule,
}

/// The rule of a health check that cannot be decided by one scan of files. Its outcome also depends
/// on earlier scans, on the kernel's log, or on a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeferredRule {
    /// A number with an upper limit. If the number reaches `limit`, the device is unhealthy until
    /// the number falls below `recovery_limit`. So a number that varies around the limit does not
    /// change the health at each scan.
    Limit {
        number: i64,
        /// A healthy device becomes unhealthy if the number reaches this value.
        limit: i64,
        /// An unhealthy device becomes healthy again if the number falls below this value.
        recovery_limit: i64,
    },
    /// A number that must keep changing, such as the heartbeat counter of a firmware.
    Heartbeat {
        number: i64,
        /// The maximum time for which the number of a healthy device may stay the same.
        max_interval: Duration,
    },
    /// The device is healthy as long as the kernel's log has no line that reports one of `faults`.
    NoLoggedFault {
        /// The beginning of a log line about this device, up to the number of the fault.
        line_prefix: String,
        faults: LoggedFaults,
        /// Advice for the administrator, added to the message about a fault.
        advice: Option<String>,
    },
    /// A program of the host reports whether the device is healthy. The caller runs the program;
    /// see [`super::HealthCommand`].
    Program {
        program: HealthProgram,
        /// The program's path on this host. `None` if the program is at the path in the class file.
        host_program: Option<super::HostProgram>,
        /// Advice for the administrator: how to repair the device.
        advice: Option<String>,
    },
    /// The outcome of the check in this scan. A changed outcome counts only after it has lasted for
    /// some time, so that a flickering value does not change the health.
    Debounced {
        /// The fault that this scan found. `None` means that the check passed.
        fault: Option<String>,
        /// The time for which a changed outcome must last before it counts.
        debounce_time: Duration,
    },
}

/// Runs the checks of a device. Returns its health, the results for [`super::HealthHistory`], and
/// the first fault that concerns only the device as a whole and not its partitions. An unhealthy
/// device has the reason of its first unusable node, or else of its first failed check. With
/// `needs_node`, a device is unhealthy if the host has none of its nodes, even if each of them is
/// optional.
pub(super) fn check_device<'a>(
    checks: impl Iterator<Item = &'a HealthCheck>,
    nodes: &[FoundNode],
    needs_node: bool,
    candidate: &DeviceCandidate,
    host: &dyn HostView,
) -> (Health, Vec<DeferredCheck>, Option<String>) {
    let mut deferred_checks = Vec::new();
    let mut fault = nodes
        .iter()
        .find_map(|node| node.number.unusable_reason().map(str::to_owned));
    let has_no_node = nodes
        .iter()
        .all(|node| matches!(node.number, PathLookup::OptionalAbsent));
    if needs_node && has_no_node {
        fault = Some(describe_absent_nodes(nodes));
    }
    let mut whole_device_fault = None;
    for (number, check) in checks.enumerate() {
        let (source, rule, check_fault) = run_check(check, candidate, host);
        deferred_checks.extend(rule.map(|rule| DeferredCheck {
            check_number: number,
            source,
            rule,
        }));
        if check.is_about_whole_device {
            whole_device_fault = whole_device_fault.or(check_fault);
        } else {
            fault = fault.or(check_fault);
        }
    }
    let health = match fault {
        None => Health::Healthy,
        Some(reason) => Health::Unhealthy { reason },
    };
    (health, deferred_checks, whole_device_fault)
}

/// Returns the reason for users if a device is unhealthy because the host has none of its nodes.
/// Each of the nodes is optional, but the device needs at least one.
fn describe_absent_nodes(nodes: &[FoundNode]) -> String {
    let paths = nodes
        .iter()
        .map(|node| node.host_path.display().to_string());
    let paths: Vec<String> = paths.collect();
    if paths.is_empty() {
        return "the driver has made no node for it".to_owned();
    }
    format!(
        "{} does not exist, and it has no other node",
        paths.join(", ")
    )
}

/// Runs one check. The first value is the file or pattern that the check reads, for messages. The
/// second is a rule, if the outcome does not follow from one scan. The third is the fault that this
/// scan found.
fn run_check(
    check: &HealthCheck,
    candidate: &DeviceCandidate,
    host: &dyn HostView,
) -> (String, Option<DeferredRule>, Option<String>) {
    let advice = check.advice.as_ref();
    let advice = advice.map(|advice| attributes::fill_advice(advice, &candidate.attributes));
    let (source, (rule, fault)) = match &check.test {
        HealthTest::PathExists(pattern) => {
            let fault = check_existence(pattern, candidate, host).err();
            (pattern.to_string(), (None, fault))
        }
        HealthTest::Value { value, expected } => {
            let fault = match value.fill(&candidate.attributes) {
                Ok(actual_value) => (!expected.accepts(&actual_value)).then(|| {
                    let names: Vec<&str> = value.attributes().map(AttributeName::as_str).collect();
                    let names = names.join(" ");
                    format!(
                        "{names} is `{}`{}",
                        excerpt(&actual_value),
                        describe_expected_values(expected)
                    )
                }),
                Err(error) => Some(error.to_string()),
            };
            (value.to_string(), (None, fault))
        }
        HealthTest::File { file, rule } => {
            let base = candidate.path.as_deref();
            match attributes::resolve_path(file, base, &candidate.attributes) {
                Ok(path) => (path.display().to_string(), check_file(&path, rule, host)),
                Err(error) => (file.to_string(), (None, Some(error.to_string()))),
            }
        }
        HealthTest::Program(program) => {
            let path = program.command.first().map(ToString::to_string);
            let rule = DeferredRule::Program {
                program: program.clone(),
                host_program: None,
                advice: advice.clone(),
            };
            (path.unwrap_or_default(), (Some(rule), None))
        }
        HealthTest::NoLoggedFault {
            line_prefix,
            faults,
        } => match line_prefix.fill(&candidate.attributes) {
            Ok(line_prefix) => {
                let rule = DeferredRule::NoLoggedFault {
                    line_prefix: line_prefix.clone(),
                    faults: faults.clone(),
                    advice: advice.clone(),
                };
                (line_prefix, (Some(rule), None))
            }
            Err(error) => (line_prefix.to_string(), (None, Some(error.to_string()))),
        },
    };
    let fault = match &advice {
        Some(advice) => fault.map(|fault| format!("{fault}; {advice}")),
        None => fault,
    };
    match check.debounce_time {
        Some(debounce_time) => {
            let rule = DeferredRule::Debounced {
                fault,
                debounce_time,
            };
            (source, Some(rule), None)
        }
        None => (source, rule, fault),
    }
}

/// Returns whether a device is unhealthy because of a driver property, which a program of the
/// driver has reported. Checks that concern only the device as a whole, and not its partitions, do
/// not count.
pub fn is_unhealthy_by_driver_property(class: &DeviceClass, inventory: &Inventory) -> bool {
    let sources = &class.spec.discover;
    let attributes = sources.iter().flat_map(|source| &source.attributes);
    let properties = attributes.filter_map(|source| match &source.origin {
        AttributeOrigin::Text {
            name,
            text: TextSource::DriverProperty(_),
            ..
        } => Some(name),
        _ => None,
    });
    let properties: BTreeSet<&AttributeName> = collect_by_insertion(properties);
    let source_checks = sources.iter().flat_map(|source| &source.health);
    let mut checks = class.spec.device.health.iter().chain(source_checks);
    checks.any(|check| match &check.test {
        HealthTest::Value { value, expected } if !check.is_about_whole_device => {
            let is_unhealthy = |device: &Device| {
                let value = value.fill(&device.attributes);
                value.is_ok_and(|value| !expected.accepts(&value))
            };
            value.attributes().any(|name| properties.contains(name))
                && inventory.devices.iter().any(is_unhealthy)
        }
        _ => false,
    })
}

/// Returns files whose first bytes show whether the device still responds. With each path, returns
/// the first bytes that the file has when the device does not respond, such as `ff ff ff ff` in the
/// configuration space of a PCI device.
pub fn list_response_checks(class: &DeviceClass, device: &Device) -> Vec<(PathBuf, Vec<u8>)> {
    let sources = class.spec.discover.iter();
    let source_checks = sources.flat_map(|source| &source.health);
    let checks = class.spec.device.health.iter().chain(source_checks);
    let files = checks.filter_map(|check| match &check.test {
        HealthTest::File {
            file,
            rule: FileRule::ForbiddenPrefix(forbidden_prefix),
        } => {
            let path = PathBuf::from(file.fill(&device.attributes).ok()?);
            path.is_absolute().then(|| (path, forbidden_prefix.clone()))
        }
        _ => None,
    });
    files.collect()
}

fn check_existence(
    pattern: &PathPattern,
    candidate: &DeviceCandidate,
    host: &dyn HostView,
) -> Result<(), String> {
    if search::has_match(pattern, &candidate.attributes, host) {
        return Ok(());
    }
    let pattern = attributes::fill_advice(&pattern.to_string(), &candidate.attributes);
    Err(format!("{pattern} does not exist"))
}

/// Reads the file of a health check and applies the check's rule to its content. The first value is
/// a rule that also needs other scans, if the check has one. The second is the fault that this scan
/// found.
fn check_file(
    path: &Path,
    rule: &FileRule,
    host: &dyn HostView,
) -> (Option<DeferredRule>, Option<String>) {
    // Only the bytes that are compared are read. The file may be the PCI configuration space, of
    // which the kernel reads each word from the device: all of it takes milliseconds, or tens of
    // milliseconds in a virtual machine.
    let limit = match rule {
        FileRule::ForbiddenPrefix(forbidden_prefix) => forbidden_prefix.len(),
        _ => MAX_ATTRIBUTE_BYTES,
    };
    let text = match host.read(path, limit) {
        Ok(bytes) if matches!(rule, FileRule::ForbiddenPrefix(forbidden_prefix) if bytes.starts_with(forbidden_prefix)) =>
        {
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
    // Strings in the device tree end with a NUL byte, which is not a part of the value.
    let value = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    match (rule, value.parse()) {
        (FileRule::Expected(expected), _) => {
            let (path, content) = (path.display(), excerpt(value));
            let fault = || {
                format!(
                    "{path} is `{content}`{}",
                    describe_expected_values(expected)
                )
            };
            (None, (!expected.accepts(value)).then(fault))
        }
        (FileRule::ForbiddenPrefix(_), _) => (None, None),
        (_, Err(_)) => {
            let fault = format!("{} is not a number: {}", path.display(), excerpt(value));
            (None, Some(fault))
        }
        (
            &FileRule::UpperLimit {
                limit,
                recovery_limit,
            },
            Ok(number),
        ) => {
            let rule = DeferredRule::Limit {
                number,
                limit,
                recovery_limit,
            };
            let fault = || format!("{} is {number}, not below {limit}", path.display());
            (Some(rule), (number >= limit).then(fault))
        }
        (&FileRule::Heartbeat { max_interval }, Ok(number)) => {
            let rule = DeferredRule::Heartbeat {
                number,
                max_interval,
            };
            (Some(rule), None)
        }
    }
}
