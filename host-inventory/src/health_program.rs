//! Runs a program of the host that reports whether devices are healthy.

use std::path::Path;
use std::process::ExitStatus;

use device_class::discover::{Health, HealthCommand};
use device_class::ownership;
use injection_plan::program_output;

use crate::host_program;

/// The number of bytes of a program's output that are kept. Further output is read and discarded,
/// so that the program does not block on a full pipe.
const MAX_OUTPUT: usize = 64 * 1024;

/// The result of one run of a health program, which may report on several devices.
#[derive(Debug, Clone)]
pub(crate) enum ProgramOutcome {
    /// The program exited with this status and printed this text.
    Exited(ExitStatus, String),
    /// The program exceeded its timeout and was killed.
    Killed,
    /// The program could not be started, for this reason. The health of its devices does not
    /// change.
    NotRun(String),
}

impl ProgramOutcome {
    /// Derives the health of one device. `command` has the rule by which the device's class judges
    /// the output.
    pub(crate) fn judge_health(&self, command: &HealthCommand) -> Health {
        let fault = match self {
            ProgramOutcome::Exited(status, text) => command.find_fault(*status, text),
            ProgramOutcome::Killed => Some(command.describe_timeout()),
            ProgramOutcome::NotRun(_) => None,
        };
        match fault {
            None => Health::Healthy,
            Some(reason) => Health::Unhealthy { reason },
        }
    }
}

/// Runs a health program of the host whose root directory is `root`.
pub(crate) fn run_health_program(command: &HealthCommand, root: &Path) -> ProgramOutcome {
    let HealthCommand {
        program,
        arguments,
        timeout,
        library_path,
        ..
    } = command;
    let not_run = |reason: &dyn std::fmt::Display| {
        ProgramOutcome::NotRun(format!("{} cannot be run: {reason}", program.display()))
    };
    if let Err(error) = ownership::program(root, program) {
        return not_run(&error);
    }
    let mut command = host_program::command(root, program, arguments);
    program_output::set_library_path(&mut command, library_path);
    match program_output::run_program(command, *timeout, MAX_OUTPUT) {
        Err(error) => not_run(&error),
        Ok(None) => ProgramOutcome::Killed,
        Ok(Some((status, _))) if status.code() == Some(host_program::NOT_RUN.into()) => {
            not_run(&"see deploy/components/host-programs")
        }
        Ok(Some((status, text))) => ProgramOutcome::Exited(status, text),
    }
}

#[cfg(test)]
mod tests;
