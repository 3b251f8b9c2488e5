//! Checks that must pass for a device to be healthy.

use std::time::Duration;

use serde::Deserialize;

use super::attribute::{Pattern, fill_with_ones};
use super::condition::Expectation;
use super::prepare::Timeout;
use crate::pattern::PathPattern;
use crate::template::{Template, hexadecimal};

/// One entry of `health`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawHealthCheck")]
pub struct HealthCheck {
    pub test: HealthTest,
    /// The time for which a new outcome must last before it counts, so that a flickering device
    /// keeps its health. [`crate::discover::HealthHistory`] measures the time.
    pub steady_for: Option<Duration>,
    /// The action by which an administrator repairs the device if the check fails.
    pub advice: Option<String>,
    /// Whether the check concerns only the device as a whole. Parts can be made of the device
    /// although such a check fails.
    pub of_whole: bool,
}

#[derive(Debug, Clone)]
pub enum HealthTest {
    Exists(PathPattern),
    /// A text that is composed of attributes has an expected value.
    Value {
        value: Template,
        expected: Expectation,
    },
    /// The content of a file follows a rule.
    File {
        /// The path of the file: absolute, or relative to the path that the source matched.
        file: Template,
        /// The rule that the content must follow.
        rule: FileRule,
    },
    /// A program of the host reports that the device is healthy. Only the plugin runs the
    /// program, and only if config.toml has `health_programs` for the class.
    Program(HealthProgram),
    /// The kernel has not logged a fault of the device. One scan cannot show this, so
    /// [`crate::discover::HealthHistory`] judges it from the records of the kernel's log.
    Unlogged {
        /// The beginning of a record, up to the number of the fault.
        line: Template,
        faults: LoggedFaults,
    },
}

/// The lines of the kernel's log that mean a fault, by their text from the number on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedFaults {
    /// The numbers that mean a fault.
    pub codes: Vec<u32>,
    /// A pattern that a line with such a number has to match. `None` means that the number
    /// is enough.
    pub words: Option<Pattern>,
    /// A pattern for lines that mean the end of the fault.
    pub repaired: Option<Pattern>,
}

/// A program of the host that reports whether a device is healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthProgram {
    /// The absolute path of the program and its arguments, as templates.
    pub command: Vec<Template>,
    /// The time after which the program is killed.
    pub timeout: Duration,
    /// The output that the program must print, in addition to exiting with status 0.
    pub prints: Option<ExpectedOutput>,
}

/// The output that a health program must print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedOutput {
    /// The part of the program's output that is compared.
    pub part: Part,
    /// The values that are accepted.
    pub expected: Expectation,
}

/// A part of a program's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// The value of the first line `key: value` with this key.
    Line(String),
    /// The first group of a regular expression, by template.
    Match(Template),
}

/// A rule for the content of a file, without surrounding white space.
#[derive(Debug, Clone)]
pub enum FileRule {
    Expected(Expectation),
    /// The content does not begin with these bytes.
    NotBytes(Vec<u8>),
    /// The content is a number below a limit.
    Below {
        /// The lowest number that is too high, in the unit of the file.
        limit: i64,
        /// After the limit was reached, the device is healthy again only below this number.
        recovers_below: i64,
    },
    /// The content is a number that keeps changing, such as a heartbeat. One scan cannot show a
    /// change, so [`crate::discover::HealthHistory`] compares several scans.
    Advances {
        /// The longest time for which the number may stay the same.
        within: Duration,
    },
}

/// # `health`
///
/// A check that must pass for a device to be healthy. One of: `exists`; `value` with
/// `equals`, `one_of` or `not_equals`; `file`
/// with `equals`, `one_of`, `not_equals`, `not_leading_bytes`, `below` (and
/// `recovers_below`) or `changes_within`; `kernel_log` with `codes`; `program`. A device whose nodes are missing is always unhealthy.
#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "health"))]
pub(super) struct RawHealthCheck {
    /// The kernel's log has no line that begins with this text (by template, such as `xdrv {bdf}:
    /// error `) and one of `codes` after it. Only the plugin reads the log. The device is healthy
    /// again after it was absent, and after the line `boathook: repaired ID`, which root can write
    /// to /dev/kmsg.
    kernel_log: Option<Template>,
    /// With `kernel_log`: the numbers that mean a fault.
    codes: Option<Vec<u32>>,
    /// With `kernel_log`: a regular expression that a line with one of `codes` must match too, from
    /// the number on, if the number alone does not mean a fault. It must not match names that a
    /// local user chooses, such as those of processes.
    words: Option<Pattern>,
    /// With `kernel_log`: a regular expression; a line that begins with the text of
    /// `kernel_log` and matches it, from the number on, ends the fault.
    repaired: Option<Pattern>,
    /// A program of the host: its absolute path and its arguments, by template. The
    /// device is healthy if it exits with status 0 and prints what `equals`, `one_of`
    /// or `not_equals` requires. The plugin runs it, without a shell, with an empty
    /// environment, one program of a class at a time and each 60 seconds after its end
    /// again, if `health_programs` in `[class.NAME]` of config.toml is `true`.
    program: Option<Vec<Template>>,
    /// With `program`: the time in seconds after which the program and all processes of its group
    /// are killed, and the device is unhealthy. Default 10.
    timeout: Option<Timeout>,
    /// With `program`: the key of the line `key: value` of the output that is compared, instead of
    /// the whole output.
    key: Option<String>,
    /// With `program`: the value is the first group of this regular expression, by template, in its
    /// output. A program that reports all devices is run once for all.
    regex: Option<Template>,
    /// A path matches this pattern.
    exists: Option<PathPattern>,
    /// A text composed of attributes, by template, such as a fact.
    value: Option<Template>,
    /// The file to read: absolute, or relative to the path that the source
    /// matched.
    file: Option<Template>,
    /// The file's content, the output, or the value is this.
    equals: Option<String>,
    /// The file's content is one of these.
    one_of: Option<Vec<String>>,
    /// The file's content is not this.
    not_equals: Option<String>,
    /// With `file`: its content does not begin with these bytes, in
    /// hexadecimal. The configuration space of a PCI device that no longer
    /// answers reads as `ffffffff`.
    not_leading_bytes: Option<String>,
    /// The file has a number below this limit, in the file's unit.
    below: Option<i64>,
    /// A device that exceeded the limit becomes healthy again below this value.
    recovers_below: Option<i64>,
    /// The number in the file changes at least once in this many seconds, as a
    /// heartbeat does.
    changes_within: Option<u32>,
    /// The check's outcome changes only after the new one has lasted this many
    /// seconds, so that short interruptions have no effect. The first outcome
    /// counts at once. Not with `recovers_below` or `changes_within`.
    steady_for: Option<u32>,
    /// The action that the administrator should take if the check fails; appended to the reason.
    advice: Option<String>,
    /// With `value`: the check concerns the device as a whole. Parts of the device (`[[parts]]`)
    /// can be made although the check fails.
    of_whole: Option<bool>,
}

const FORMS: &str = "a health check is `exists`, or `value` with `equals`, `one_of` or \
                     `not_equals`, or `file` with one of `equals`, `one_of`, \
                     `not_equals`, `not_leading_bytes`, `below` (and a lower `recovers_below`), \
                     `changes_within`, or `kernel_log` with `codes`, or `program`; `timeout`, \
                     `key` and `regex` go with `program`";
const KERNEL_LOG: &str = "`kernel_log` goes with `codes`, `words`, `repaired` and `advice`";
const PROGRAM: &str = "`program` goes with `timeout` and `advice`, and with `equals`, `one_of` \
                       or `not_equals` for its output, or `key` or `regex` in it";
const STEADY: &str = "`steady_for` goes with `exists` and `file`, and with neither \
                      `recovers_below` nor `changes_within`";

impl TryFrom<RawHealthCheck> for HealthCheck {
    type Error = &'static str;

    fn try_from(mut raw: RawHealthCheck) -> Result<Self, &'static str> {
        let (steady_for, advice) = (raw.steady_for.take(), raw.advice.take());
        let of_whole = raw.of_whole.take().unwrap_or(false);
        let (test, form) = if let Some(command) = raw.program.take() {
            (HealthTest::Program(raw.program(command)?), PROGRAM)
        } else if let Some(line) = raw.kernel_log.take() {
            let codes = raw.codes.take().filter(|codes| !codes.is_empty());
            let codes = codes.ok_or(KERNEL_LOG)?;
            let faults = LoggedFaults {
                codes,
                words: raw.words.take(),
                repaired: raw.repaired.take(),
            };
            (HealthTest::Unlogged { line, faults }, KERNEL_LOG)
        } else if let Some(pattern) = raw.exists.take() {
            (HealthTest::Exists(pattern), FORMS)
        } else if let Some(value) = raw.value.take() {
            let expected = raw.expectation().ok_or(FORMS)?;
            (HealthTest::Value { value, expected }, FORMS)
        } else {
            let file = raw.file.take().ok_or(FORMS)?;
            let rule = raw.rule()?;
            (HealthTest::File { file, rule }, FORMS)
        };
        // Each form takes its keys out of `raw`. A key that is left belongs to another form.
        if raw != RawHealthCheck::default() {
            return Err(form);
        }
        if steady_for.is_some() && !test.supports_steady_for() {
            return Err(STEADY);
        }
        if of_whole && !matches!(test, HealthTest::Value { .. }) {
            return Err("`of_whole` goes with `value`");
        }
        Ok(HealthCheck {
            test,
            steady_for: steady_for.map(seconds),
            advice,
            of_whole,
        })
    }
}

impl HealthTest {
    /// Returns whether `steady_for` may delay the outcome of the test.
    fn supports_steady_for(&self) -> bool {
        match self {
            HealthTest::Exists(_) => true,
            HealthTest::Value { .. } | HealthTest::Program(_) | HealthTest::Unlogged { .. } => {
                false
            }
            HealthTest::File { rule, .. } => match rule {
                FileRule::Expected(_) | FileRule::NotBytes(_) => true,
                FileRule::Advances { .. } => false,
                FileRule::Below {
                    limit,
                    recovers_below,
                } => limit == recovers_below,
            },
        }
    }
}

/// Each function takes the keys of one form of a check out of the table.
impl RawHealthCheck {
    fn program(&mut self, command: Vec<Template>) -> Result<HealthProgram, &'static str> {
        let is_path = |path: &Template| {
            path.to_string().starts_with('/') && path.attributes().next().is_none()
        };
        if !command.first().is_some_and(is_path) {
            return Err("`program` begins with the absolute path of a program");
        }
        let part = match (self.key.take(), self.regex.take()) {
            (None, None) => Part::Whole,
            (Some(key), None) => Part::Line(key),
            (None, Some(regex)) if is_regex(&regex) => Part::Match(regex),
            _ => return Err(PROGRAM),
        };
        let expected = self.expectation();
        if expected.is_none() && part != Part::Whole {
            return Err(PROGRAM);
        }
        Ok(HealthProgram {
            command,
            timeout: self.timeout.take().map_or(seconds(10), Timeout::get),
            prints: expected.map(|expected| ExpectedOutput { part, expected }),
        })
    }

    fn rule(&mut self) -> Result<FileRule, &'static str> {
        if let Some(expected) = self.expectation() {
            Ok(FileRule::Expected(expected))
        } else if let Some(text) = self.not_leading_bytes.take() {
            let bytes = hexadecimal(&text).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.map(FileRule::NotBytes);
            bytes.ok_or("`not_leading_bytes` are bytes in hexadecimal, such as ffffffff")
        } else if let Some(limit) = self.below.take() {
            let recovers_below = self.recovers_below.take().unwrap_or(limit);
            let rule = FileRule::Below {
                limit,
                recovers_below,
            };
            (recovers_below <= limit).then_some(rule).ok_or(FORMS)
        } else {
            let within = seconds(self.changes_within.take().ok_or(FORMS)?);
            Ok(FileRule::Advances { within })
        }
    }

    fn expectation(&mut self) -> Option<Expectation> {
        let equals = self.equals.take().map(|wanted| vec![wanted]);
        let wanted = equals.or_else(|| self.one_of.take());
        let refused = || Some(Expectation::NoneOf(vec![self.not_equals.take()?]));
        wanted.map(Expectation::OneOf).or_else(refused)
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Returns whether a template is a valid regular expression with any attributes.
fn is_regex(template: &Template) -> bool {
    fill_with_ones(template).is_ok_and(|text| regex_lite::Regex::new(&text).is_ok())
}
