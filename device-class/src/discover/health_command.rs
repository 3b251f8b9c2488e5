//! A program of the host that reports the health of a device, and what it reports.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::attributes;
use crate::class::{HealthProgram, Part, Printed};
use crate::name::excerpt;
use crate::template::{Attributes, TemplateError};

/// A program that is to be run for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCommand {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub timeout: Duration,
    prints: Option<Printed>,
    /// The regular expression whose first group is the value.
    regex: Option<String>,
    advice: Option<String>,
}

impl HealthCommand {
    /// Fills in the program of a check for the device with the attributes `known`.
    pub fn from_check(
        check: &HealthProgram,
        advice: Option<&str>,
        known: &Attributes,
    ) -> Result<Self, TemplateError> {
        let command = check.command.iter().map(|text| text.fill(known));
        let mut command = command.collect::<Result<Vec<_>, _>>()?.into_iter();
        let regex = match &check.prints {
            Some(Printed {
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
            prints: check.prints.clone(),
            regex,
            advice: advice.map(str::to_owned),
        })
    }

    /// Why the device is unhealthy if the program has exited with this status and
    /// printed this text.
    pub fn fault(&self, status: ExitStatus, text: &str) -> Option<String> {
        let program = self.program.display();
        if !status.success() {
            return Some(self.advised(format!("{program} failed ({status})")));
        }
        let Printed { part, expected } = self.prints.as_ref()?;
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
        Some(self.advised(format!("{program} printed {fault}")))
    }

    /// Why the device is unhealthy if the program had to be killed.
    pub fn timed_out(&self) -> String {
        let (program, seconds) = (self.program.display(), self.timeout.as_secs());
        self.advised(format!(
            "{program} took longer than {seconds} seconds and was killed"
        ))
    }

    fn advised(&self, fault: String) -> String {
        match &self.advice {
            Some(advice) => format!("{fault}; {advice}"),
            None => fault,
        }
    }
}

/// The first group of a regular expression, where it matches first.
fn first_group<'t>(regex: &str, text: &'t str) -> Option<&'t str> {
    let groups = regex_lite::Regex::new(regex).ok()?.captures(text)?;
    Some(groups.get(1).or(groups.get(0))?.as_str())
}
