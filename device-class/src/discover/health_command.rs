//! Builds the command line of a health check that runs a program, and evaluates the output of the
//! program.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::{DeferredCheck, DeferredRule, Device, HostProgram, attributes};
use crate::class::{ExpectedOutput, HealthProgram, OutputPart};
use crate::name::excerpt;
use crate::template::{Attributes, TemplateError};

/// The command line of a health check for one device. The caller runs the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCommand {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub timeout: Duration,
    /// Directories with libraries that the program needs and the host's ld.so.cache does not list.
    /// The caller passes them in `LD_LIBRARY_PATH`.
    pub library_path: Vec<PathBuf>,
    expected_output: Option<ExpectedOutput>,
    /// A regular expression with the device's attributes filled in. Its first group in the output
    /// is compared with the expected values.
    regex: Option<String>,
    advice: Option<String>,
}

impl HealthCommand {
    /// Returns the command line of a health check of a device, with the program's path on this
    /// host. Returns `None` if the check runs no program.
    pub fn from_deferred_check(
        deferred_check: &DeferredCheck,
        device: &Device,
    ) -> Option<Result<Self, TemplateError>> {
        let DeferredRule::Program {
            program,
            host_program,
            advice,
        } = &deferred_check.rule
        else {
            return None;
        };
        let command = Self::from_check(program, advice.as_deref(), &device.attributes);
        Some(command.map(|command| command.with_host_program(host_program.as_ref())))
    }

    /// Fills in the command line of a check with the attributes of a device. Special characters of
    /// the values are escaped in the regular expression, so that they match literally.
    fn from_check(
        check: &HealthProgram,
        advice: Option<&str>,
        attributes: &Attributes,
    ) -> Result<Self, TemplateError> {
        let command = check.command.iter().map(|text| text.fill(attributes));
        let mut command = command.collect::<Result<Vec<_>, _>>()?.into_iter();
        let regex = match &check.expected_output {
            Some(ExpectedOutput {
                part: OutputPart::Match(regex),
                ..
            }) => {
                let mut escaped_attributes = attributes.clone();
                for value in escaped_attributes.values_mut() {
                    *value = regex_lite::escape(value);
                }
                Some(regex.fill(&escaped_attributes)?)
            }
            _ => None,
        };
        Ok(HealthCommand {
            program: command.next().unwrap_or_default().into(),
            arguments: command.collect(),
            timeout: check.timeout,
            library_path: Vec::new(),
            expected_output: check.expected_output.clone(),
            regex,
            advice: advice.map(str::to_owned),
        })
    }

    /// Replaces the program's path from the class file by its path on this host. `None` keeps the
    /// path.
    fn with_host_program(mut self, host_program: Option<&HostProgram>) -> Self {
        if let Some(HostProgram { path, library_path }) = host_program {
            self.program.clone_from(path);
            self.library_path.clone_from(library_path);
        }
        self
    }

    /// Evaluates the program's exit status and output. Returns the reason why the device is
    /// unhealthy, or `None` if it is healthy.
    pub fn find_fault(&self, status: ExitStatus, output: &str) -> Option<String> {
        let program = self.program.display();
        if !status.success() {
            return Some(self.append_advice(format!("{program} failed ({status})")));
        }
        let ExpectedOutput { part, expected } = self.expected_output.as_ref()?;
        let (value, expected_form) = match part {
            OutputPart::Whole => (Some(output.trim()), String::new()),
            OutputPart::Line(key) => (
                attributes::find_keyed_values(output, key).next(),
                format!("line `{key}`"),
            ),
            OutputPart::Match(_) => {
                let regex = self.regex.as_deref().unwrap_or_default();
                (first_group(regex, output), format!("match of `{regex}`"))
            }
        };
        let fault = match (value, part) {
            (Some(value), _) if expected.accepts(value) => return None,
            (Some(value), OutputPart::Line(key)) => format!("`{key}: {}`", excerpt(value)),
            (Some(value), _) => format!("`{}`", excerpt(value)),
            (None, _) => format!("no {expected_form}"),
        };
        Some(self.append_advice(format!("{program} printed {fault}")))
    }

    /// Returns the reason why the device is unhealthy if the program ran longer than its time limit
    /// and was killed.
    pub fn describe_timeout(&self) -> String {
        let (program, seconds) = (self.program.display(), self.timeout.as_secs());
        self.append_advice(format!(
            "{program} took longer than {seconds} seconds and was killed"
        ))
    }

    fn append_advice(&self, fault: String) -> String {
        match &self.advice {
            Some(advice) => format!("{fault}; {advice}"),
            None => fault,
        }
    }
}

/// Returns the first group of the first match of a regular expression, or the whole match if
/// the expression has no group.
fn first_group<'t>(regex: &str, text: &'t str) -> Option<&'t str> {
    let groups = regex_lite::Regex::new(regex).ok()?.captures(text)?;
    Some(groups.get(1).or(groups.get(0))?.as_str())
}
