//! Runs a program of the host that reports whether devices are healthy.

use std::path::Path;
use std::process::ExitStatus;

use device_class::discover::{Health, HealthCommand};
use device_class::ownership;
use injection_plan::program_output;

use crate::host_program;

/// The longest output of a program that is kept, in bytes. The rest is read and dropped.
const MAX_OUTPUT: usize = 64 * 1024;

/// The result of one run of a health program. One run may report on several devices.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// The program exited with this status and printed this text.
    Exited(ExitStatus, String),
    /// The program exceeded its timeout and was killed.
    Killed,
    /// The program could not be started, for this reason. The health of devices does not
    /// change.
    NotRun(String),
}

impl Outcome {
    /// Returns the health that this result means for the device of `command`.
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

/// Runs a health program of the host whose root directory is `root`.
pub(crate) fn run(command: &HealthCommand, root: &Path) -> Outcome {
    let HealthCommand {
        program,
        arguments,
        timeout,
        library_path,
        ..
    } = command;
    let not_run = |reason: &dyn std::fmt::Display| {
        Outcome::NotRun(format!("{} cannot be run: {reason}", program.display()))
    };
    if let Err(error) = ownership::program(root, program) {
        return not_run(&error);
    }
    let mut command = host_program::command(root, program, arguments);
    program_output::set_library_path(&mut command, library_path);
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
