//! Builds the command line of a health check that runs a program, and judges the program's output.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::{Device, HistoryRule, HostProgram, Reading, attributes};
use crate::class::{ExpectedOutput, HealthProgram, Part};
use crate::name::excerpt;
use crate::template::{Attributes, TemplateError};

/// The command of a health check for one device. The caller runs the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCommand {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub timeout: Duration,
    /// The directories with libraries of the program that are not in the host's ld.so.cache.
    pub library_path: Vec<PathBuf>,
    prints: Option<ExpectedOutput>,
    /// A regular expression. Its first group in the output is the value that the check compares.
    regex: Option<String>,
    advice: Option<String>,
}

impl HealthCommand {
    /// Returns the command for a reading of a device, with the path of the program on this host.
    /// Returns `None` if the reading needs no program.
    pub fn from_reading(reading: &Reading, device: &Device) -> Option<Result<Self, TemplateError>> {
        let HistoryRule::Program {
            program,
            place,
            advice,
        } = &reading.rule
        else {
            return None;
        };
        let command = Self::from_check(program, advice.as_deref(), &device.attributes);
        Some(command.map(|command| command.with_place(place.as_ref())))
    }

    /// Fills in the command of a check for the device with the attributes `known`. Attributes in
    /// the regular expression are escaped, so that they match literally.
    fn from_check(
        check: &HealthProgram,
        advice: Option<&str>,
        known: &Attributes,
    ) -> Result<Self, TemplateError> {
        let command = check.command.iter().map(|text| text.fill(known));
        let mut command = command.collect::<Result<Vec<_>, _>>()?.into_iter();
        let regex = match &check.prints {
            Some(ExpectedOutput {
                part: Part::Match(regex),
                ..
            }) => {
                let mut plain = known.clone();
                for value in plain.values_mut() {
                    *value = regex_lite::escape(value);
                }
                Some(regex.fill(&plain)?)
            }
            _ => None,
        };
        Ok(HealthCommand {
            program: command.next().unwrap_or_default().into(),
            arguments: command.collect(),
            timeout: check.timeout,
            library_path: Vec::new(),
            prints: check.prints.clone(),
            regex,
            advice: advice.map(str::to_owned),
        })
    }

    /// Replaces the path of the program by the one at which this host has it, if it is not the path
    /// in the class file.
    fn with_place(mut self, place: Option<&HostProgram>) -> Self {
        if let Some(HostProgram { path, library_path }) = place {
            self.program.clone_from(path);
            self.library_path.clone_from(library_path);
        }
        self
    }

    /// Judges a run of the program by its exit status and its output. Returns the reason why the
    /// device is unhealthy, or `None` if the device is healthy.
    pub fn find_fault(&self, status: ExitStatus, text: &str) -> Option<String> {
        let program = self.program.display();
        if !status.success() {
            return Some(self.fill_advice(format!("{program} failed ({status})")));
        }
        let ExpectedOutput { part, expected } = self.prints.as_ref()?;
        let (value, wanted) = match part {
            Part::Whole => (Some(text.trim()), String::new()),
            Part::Line(key) => (
                attributes::keyed_values(text, key).next(),
                format!("line `{key}`"),
            ),
            Part::Match(_) => {
                let regex = self.regex.as_deref().unwrap_or_default();
                (first_group(regex, text), format!("match of `{regex}`"))
            }
        };
        let fault = match (value, part) {
            (Some(value), _) if expected.holds(value) => return None,
            (Some(value), Part::Line(key)) => format!("`{key}: {}`", excerpt(value)),
            (Some(value), _) => format!("`{}`", excerpt(value)),
            (None, _) => format!("no {wanted}"),
        };
        Some(self.fill_advice(format!("{program} printed {fault}")))
    }

    /// Returns the reason why the device is unhealthy if the program exceeded its time limit and was
    /// killed.
    pub fn describe_timeout(&self) -> String {
        let (program, seconds) = (self.program.display(), self.timeout.as_secs());
        self.fill_advice(format!(
            "{program} took longer than {seconds} seconds and was killed"
        ))
    }

    fn fill_advice(&self, fault: String) -> String {
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
