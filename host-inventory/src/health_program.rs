//! One run of a program of the host that reports whether devices are healthy.

use std::path::Path;
use std::process::ExitStatus;

use device_class::discover::{Health, HealthCommand};
use device_class::ownership;
use injection_plan::program_output;

use crate::host_program;

/// The length of a program's output that is kept, in bytes; the rest is read and dropped.
const MAX_OUTPUT: usize = 64 * 1024;

/// How a run ended. One run may judge several devices.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// It exited, and printed this.
    Exited(ExitStatus, String),
    /// It took too long and was killed.
    Killed,
    /// It could not be run, which does not change a device's health.
    NotRun(String),
}

impl Outcome {
    /// What it means for the device of a command.
    pub(crate) fn health(&self, command: &HealthCommand) -> Health {
        let fault = match self {
            Outcome::Exited(status, text) => command.fault(*status, text),
            Outcome::Killed => Some(command.timed_out()),
            Outcome::NotRun(_) => None,
        };
        match fault {
            None => Health::Healthy,
            Some(reason) => Health::Unhealthy { reason },
        }
    }
}

/// Runs a program of the host whose root is at `root`.
pub(crate) fn run(command: &HealthCommand, root: &Path) -> Outcome {
    let HealthCommand {
        program,
        arguments,
        timeout,
        ..
    } = command;
    let not_run = |reason: &dyn std::fmt::Display| {
        Outcome::NotRun(format!("{} cannot be run: {reason}", program.display()))
    };
    if let Err(error) = ownership::program(root, program) {
        return not_run(&error);
    }
    let command = host_program::command(root, program, arguments);
    match program_output::run_program(command, *timeout, MAX_OUTPUT) {
        Err(error) => not_run(&error),
        Ok(None) => Outcome::Killed,
        Ok(Some((status, _))) if status.code() == Some(host_program::NOT_RUN.into()) => {
            not_run(&"see deploy/components/host-programs")
        }
        Ok(Some((status, text))) => Outcome::Exited(status, text),
    }
}

#[cfg(test)]
mod tests;
