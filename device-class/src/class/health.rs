//! The checks of a device's health (`health`).

use std::time::Duration;

use serde::Deserialize;

use super::attribute::{RegexPattern, fill_with_sample_values};
use super::condition::ValueConstraint;
use super::prepare::Timeout;
use crate::pattern::PathPattern;
use crate::template::{Template, decode_hexadecimal};

/// One entry of `health`: a check that must pass for a device to be healthy.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawHealthCheck")]
pub struct HealthCheck {
    pub test: HealthTest,
    /// The time for which a changed outcome must last before it counts, so that a device whose
    /// check flickers keeps its health. [`crate::discover::HealthHistory`] measures the time.
    pub debounce_time: Option<Duration>,
    /// The instruction by which the administrator repairs the device if the check fails.
    pub advice: Option<String>,
    /// Whether the check is only about the device as a whole. If such a check fails, partitions of
    /// the device can still be made.
    pub is_about_whole_device: bool,
}

#[derive(Debug, Clone)]
pub enum HealthTest {
    PathExists(PathPattern),
    /// A text that is composed of the device's attributes has an expected value.
    Value {
        value: Template,
        expected: ValueConstraint,
    },
    /// The content of a file of the device follows a rule, such as an upper limit for a
    /// temperature.
    File {
        /// The path of the file: absolute, or relative to the path that the entry of `[[discover]]`
        /// matched.
        file: Template,
        /// The rule for the content, such as its accepted values or an upper limit.
        rule: FileRule,
    },
    /// A program of the host reports that the device is healthy. Only the plugin runs the program,
    /// and only if config.toml sets `health_programs` for the class.
    Program(HealthProgram),
    /// The kernel has not logged a fault of the device. A single scan of the host cannot show this,
    /// so [`crate::discover::HealthHistory`] evaluates this test from the kernel's log.
    NoLoggedFault {
        /// The beginning of a log line about this device, up to the number of the fault.
        line_prefix: Template,
        faults: LoggedFaults,
    },
}

/// The rule that decides which lines of the kernel's log report a fault of a device, and which
/// lines report that the fault has ended. The patterns are matched against the line from the
/// fault's number on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedFaults {
    /// The numbers in a log line that stand for faults. Lines with other numbers are ignored.
    pub codes: Vec<u32>,
    /// A pattern that a log line with one of `codes` must also match to count as a fault. `None`
    /// means that the number alone is enough.
    pub fault_pattern: Option<RegexPattern>,
    /// A pattern for the log lines that report the end of the fault. `None` means that the driver
    /// logs no such line.
    pub recovery_pattern: Option<RegexPattern>,
}

/// A program of the host, such as the driver's own tool, that reports whether a device is healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthProgram {
    /// The absolute path of the program and its arguments, as templates.
    pub command: Vec<Template>,
    /// The time after which the program is killed. The device then is unhealthy.
    pub timeout: Duration,
    /// The output that the program must print. The program must also exit with status 0.
    pub expected_output: Option<ExpectedOutput>,
}

/// The output that a health program must print if the device is healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedOutput {
    /// The part of the output that is compared: all of it, one line, or a match of an expression.
    pub part: OutputPart,
    /// The values that this part may have, or must not have.
    pub expected: ValueConstraint,
}

/// The part of a program's output that is compared with the expected values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPart {
    Whole,
    /// The value of the first output line `key: value` with this key.
    Line(String),
    /// The first group of a regular expression, which is written as a template.
    Match(Template),
}

/// A rule for the content of a file. White space around the content is ignored.
#[derive(Debug, Clone)]
pub enum FileRule {
    Expected(ValueConstraint),
    /// The content does not begin with these bytes, such as `ff ff ff ff`, which the kernel reads
    /// from a PCI device that no longer answers.
    ForbiddenPrefix(Vec<u8>),
    /// The content is a number below a limit, such as a temperature or a number of errors.
    UpperLimit {
        /// The limit, in the unit of the file. At this number or a higher one the device is
        /// unhealthy.
        limit: i64,
        /// The number below which the device is healthy again after it has reached the limit.
        recovery_limit: i64,
    },
    /// The content is a number that keeps changing, such as a heartbeat. A single scan of the host
    /// cannot show a change, so [`crate::discover::HealthHistory`] compares several scans.
    Heartbeat {
        /// The longest time for which the number of a healthy device may stay the same.
        max_interval: Duration,
    },
}

/// # `health`
///
/// A check that must pass for a device to be healthy: `exists`; or `value` with `equals`, `one_of`
/// or `not_equals`; or `file` with `equals`, `one_of`, `not_equals`, `not_leading_bytes`, `below`
/// (and `recovers_below`) or `changes_within`; or `kernel_log` with `codes`; or `program`. A device
/// whose nodes are missing is always unhealthy.
#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "health"))]
pub(super) struct RawHealthCheck {
    /// A template for the beginning of a line of the kernel's log, such as `xdrv {bdf}: error `.
    /// The device is unhealthy if the log has such a line, followed by one of `codes`. Only the
    /// plugin reads the log. The device is healthy again if it disappears and comes back, or if
    /// root writes the line `boathook: repaired ID` to /dev/kmsg.
    #[serde(rename = "kernel_log")]
    log_line_prefix: Option<Template>,
    /// With `kernel_log`: the numbers that stand for a fault if the line continues with one of
    /// them.
    #[serde(rename = "codes")]
    fault_codes: Option<Vec<u32>>,
    /// With `kernel_log`: a regular expression, for drivers whose numbers alone do not mean a
    /// fault. A line with one of `codes` is a fault only if the line, from the number on, matches
    /// the expression. The expression must not match names that a local user chooses, such as names
    /// of processes.
    #[serde(rename = "words")]
    fault_pattern: Option<RegexPattern>,
    /// With `kernel_log`: a regular expression for the line with which the driver reports that the
    /// fault has ended. The line must begin with the text of `kernel_log`, and the rest of the line
    /// must match the expression.
    #[serde(rename = "repaired")]
    recovery_pattern: Option<RegexPattern>,
    /// A program of the host: templates for its absolute path and its arguments. The device is
    /// healthy if the program exits with status 0 and prints what `equals`, `one_of` or
    /// `not_equals` requires. The plugin runs the program if config.toml has `health_programs =
    /// true` in `[class.NAME]`, without a shell and with an empty environment. It runs the program
    /// again 60 seconds after it ended, and at most four programs of a class at the same time.
    program: Option<Vec<Template>>,
    /// With `program`: the maximum run time in seconds. After it, the program and all processes of
    /// its process group are killed, and the device is unhealthy. Default 10.
    timeout: Option<Timeout>,
    /// With `program`: the key of one output line `key: value`. Only the value of this line is
    /// compared, instead of the whole output.
    key: Option<String>,
    /// With `program`: a template for a regular expression. The value that is compared is its first
    /// group in the output. If one command line reports all devices, it is run once for all of
    /// them.
    regex: Option<Template>,
    /// A pattern of host paths. The check passes if at least one path matches.
    #[serde(rename = "exists")]
    required_path: Option<PathPattern>,
    /// A template for the text that is compared. It may use the attributes of the device.
    value: Option<Template>,
    /// The file that is read: absolute, or relative to the path that the entry of `[[discover]]`
    /// matched.
    file: Option<Template>,
    /// The only accepted value of the file, of the program's output, or of `value`.
    #[serde(rename = "equals")]
    expected_value: Option<String>,
    /// The accepted values of the file, of the program's output, or of `value`.
    #[serde(rename = "one_of")]
    accepted_values: Option<Vec<String>>,
    /// The value that the file, the program's output, or `value` must not have.
    #[serde(rename = "not_equals")]
    forbidden_value: Option<String>,
    /// With `file`: bytes in hexadecimal with which the file must not begin. For example, the
    /// configuration space of a PCI device that no longer answers begins with `ffffffff`.
    #[serde(rename = "not_leading_bytes")]
    forbidden_prefix_hex: Option<String>,
    /// With `file`: the limit, in the unit of the file. The number in the file must be lower than
    /// this.
    #[serde(rename = "below")]
    upper_limit: Option<i64>,
    /// With `below`: a lower number than `below`. A device that has reached the limit is healthy
    /// again when the number in the file is lower than this.
    #[serde(rename = "recovers_below")]
    recovery_limit: Option<i64>,
    /// With `file`: the maximum time in seconds for which the number in the file may stay the same.
    /// It is for numbers that keep changing, such as a heartbeat counter.
    #[serde(rename = "changes_within")]
    max_unchanged_seconds: Option<u32>,
    /// The time in seconds for which a changed outcome of the check must last before it counts, so
    /// that short interruptions have no effect. The first outcome counts at once. Not with
    /// `recovers_below` or `changes_within`.
    #[serde(rename = "steady_for")]
    debounce_seconds: Option<u32>,
    /// The instruction for the administrator if the check fails. The reason in messages ends with
    /// this text.
    advice: Option<String>,
    /// With `value`: whether the check is only about the device as a whole. If such a check fails,
    /// partitions of the device (`[[parts]]`) can still be made.
    #[serde(rename = "of_whole")]
    is_about_whole_device: Option<bool>,
}

const VALID_FORMS: &str = "a health check is `exists`, or `value` with `equals`, `one_of` or \
                     `not_equals`, or `file` with one of `equals`, `one_of`, \
                     `not_equals`, `not_leading_bytes`, `below` (and a lower `recovers_below`), \
                     `changes_within`, or `kernel_log` with `codes`, or `program`; `timeout`, \
                     `key` and `regex` go with `program`";
const KERNEL_LOG_KEYS: &str = "`kernel_log` goes with `codes`, `words`, `repaired` and `advice`";
const PROGRAM_KEYS: &str = "`program` goes with `timeout` and `advice`, and with `equals`, `one_of` \
                       or `not_equals` for its output, or `key` or `regex` in it";
const DEBOUNCE_KEYS: &str = "`steady_for` goes with `exists` and `file`, and with neither \
                      `recovers_below` nor `changes_within`";

impl TryFrom<RawHealthCheck> for HealthCheck {
    type Error = &'static str;

    fn try_from(mut raw: RawHealthCheck) -> Result<Self, &'static str> {
        let (debounce_seconds, advice) = (raw.debounce_seconds.take(), raw.advice.take());
        let is_about_whole_device = raw.is_about_whole_device.take().unwrap_or(false);
        let (test, form) = if let Some(command) = raw.program.take() {
            (
                HealthTest::Program(raw.take_program(command)?),
                PROGRAM_KEYS,
            )
        } else if let Some(line_prefix) = raw.log_line_prefix.take() {
            let codes = raw.fault_codes.take().filter(|codes| !codes.is_empty());
            let codes = codes.ok_or(KERNEL_LOG_KEYS)?;
            let faults = LoggedFaults {
                codes,
                fault_pattern: raw.fault_pattern.take(),
                recovery_pattern: raw.recovery_pattern.take(),
            };
            let test = HealthTest::NoLoggedFault {
                line_prefix,
                faults,
            };
            (test, KERNEL_LOG_KEYS)
        } else if let Some(pattern) = raw.required_path.take() {
            (HealthTest::PathExists(pattern), VALID_FORMS)
        } else if let Some(value) = raw.value.take() {
            let expected = raw.take_expectation().ok_or(VALID_FORMS)?;
            (HealthTest::Value { value, expected }, VALID_FORMS)
        } else {
            let file = raw.file.take().ok_or(VALID_FORMS)?;
            let rule = raw.take_file_rule()?;
            (HealthTest::File { file, rule }, VALID_FORMS)
        };
        // The keys of the selected form were taken out of `raw`. A key that is still there belongs
        // to another form, so it is an error.
        if raw != RawHealthCheck::default() {
            return Err(form);
        }
        if debounce_seconds.is_some() && !test.supports_debouncing() {
            return Err(DEBOUNCE_KEYS);
        }
        if is_about_whole_device && !matches!(test, HealthTest::Value { .. }) {
            return Err("`of_whole` goes with `value`");
        }
        Ok(HealthCheck {
            test,
            debounce_time: debounce_seconds.map(to_duration),
            advice,
            is_about_whole_device,
        })
    }
}

impl HealthTest {
    /// Returns whether the test supports `steady_for`, which delays a changed outcome. A heartbeat
    /// and a limit with `recovers_below` have a delay of their own.
    fn supports_debouncing(&self) -> bool {
        match self {
            HealthTest::PathExists(_) => true,
            HealthTest::Value { .. }
            | HealthTest::Program(_)
            | HealthTest::NoLoggedFault { .. } => false,
            HealthTest::File { rule, .. } => match rule {
                FileRule::Expected(_) | FileRule::ForbiddenPrefix(_) => true,
                FileRule::Heartbeat { .. } => false,
                FileRule::UpperLimit {
                    limit,
                    recovery_limit,
                } => limit == recovery_limit,
            },
        }
    }
}

/// Methods that take the keys of one form of health check out of the table, so that `try_from` can
/// report each remaining key as an error.
impl RawHealthCheck {
    fn take_program(&mut self, command: Vec<Template>) -> Result<HealthProgram, &'static str> {
        let is_fixed_path = |path: &Template| {
            path.to_string().starts_with('/') && path.attributes().next().is_none()
        };
        if !command.first().is_some_and(is_fixed_path) {
            return Err("`program` begins with the absolute path of a program");
        }
        let part = match (self.key.take(), self.regex.take()) {
            (None, None) => OutputPart::Whole,
            (Some(key), None) => OutputPart::Line(key),
            (None, Some(regex)) if is_regex(&regex) => OutputPart::Match(regex),
            _ => return Err(PROGRAM_KEYS),
        };
        let expected = self.take_expectation();
        if expected.is_none() && part != OutputPart::Whole {
            return Err(PROGRAM_KEYS);
        }
        Ok(HealthProgram {
            command,
            timeout: self.timeout.take().map_or(to_duration(10), Timeout::get),
            expected_output: expected.map(|expected| ExpectedOutput { part, expected }),
        })
    }

    fn take_file_rule(&mut self) -> Result<FileRule, &'static str> {
        if let Some(expected) = self.take_expectation() {
            Ok(FileRule::Expected(expected))
        } else if let Some(text) = self.forbidden_prefix_hex.take() {
            let bytes = decode_hexadecimal(&text).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.map(FileRule::ForbiddenPrefix);
            bytes.ok_or("`not_leading_bytes` are bytes in hexadecimal, such as ffffffff")
        } else if let Some(limit) = self.upper_limit.take() {
            let recovery_limit = self.recovery_limit.take().unwrap_or(limit);
            let rule = FileRule::UpperLimit {
                limit,
                recovery_limit,
            };
            (recovery_limit <= limit).then_some(rule).ok_or(VALID_FORMS)
        } else {
            let max_interval = to_duration(self.max_unchanged_seconds.take().ok_or(VALID_FORMS)?);
            Ok(FileRule::Heartbeat { max_interval })
        }
    }

    fn take_expectation(&mut self) -> Option<ValueConstraint> {
        let expected_value = self.expected_value.take().map(|value| vec![value]);
        let accepted_values = expected_value.or_else(|| self.accepted_values.take());
        let forbidden_value = || Some(ValueConstraint::NoneOf(vec![self.forbidden_value.take()?]));
        accepted_values
            .map(ValueConstraint::OneOf)
            .or_else(forbidden_value)
    }
}

fn to_duration(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Returns whether a template becomes a valid regular expression when its attributes are filled in.
fn is_regex(template: &Template) -> bool {
    fill_with_sample_values(template).is_ok_and(|text| regex_lite::Regex::new(&text).is_ok())
}
