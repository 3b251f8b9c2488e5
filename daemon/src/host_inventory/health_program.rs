//! Runs one health program. Such a program of the host reports whether devices are healthy.

use std::path::Path;
use std::process::ExitStatus;

use device_class::discover::{Health, HealthCommand};
use device_class::ownership;
use injection_plan::program_output;

use crate::host_inventory::host_program;

/// The maximum number of bytes of a program's output that are evaluated. The rest of the output is
/// read and dropped, so that the program does not block on a full pipe.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// The result of one run of a health program. The program may report the health of several devices.
#[derive(Debug, Clone)]
pub(crate) enum ProgramOutcome {
    /// The program exited with this status and printed this text.
    Exited(ExitStatus, String),
    /// The program exceeded its timeout and was killed.
    Killed,
    /// The program could not be started, for this reason. The health of its devices does not change
    /// because of this.
    NotStarted(String),
}

impl ProgramOutcome {
    /// Returns the health of one device. `command` contains the rule of the device's class that
    /// decides whether the program's output means a fault.
    pub(crate) fn judge_health(&self, command: &HealthCommand) -> Health {
        let fault = match self {
            ProgramOutcome::Exited(status, text) => command.find_fault(*status, text),
            ProgramOutcome::Killed => Some(command.describe_timeout()),
            ProgramOutcome::NotStarted(_) => None,
        };
        match fault {
            None => Health::Healthy,
            Some(reason) => Health::Unhealthy { reason },
        }
    }
}

/// Runs a health program of the host and waits until it ends. `host_root` is the path of the host's
/// root directory.
pub(crate) fn run_health_program(command: &HealthCommand, host_root: &Path) -> ProgramOutcome {
    let HealthCommand {
        program,
        arguments,
        timeout,
        library_path,
        ..
    } = command;
    let not_run_outcome = |reason: &dyn std::fmt::Display| {
        ProgramOutcome::NotStarted(format!("{} cannot be run: {reason}", program.display()))
    };
    if let Err(error) = ownership::resolve_trusted_program(host_root, program) {
        return not_run_outcome(&error);
    }
    let mut command = host_program::build_command(host_root, program, arguments);
    program_output::set_library_path(&mut command, library_path);
    match program_output::run_program(command, *timeout, MAX_OUTPUT_BYTES) {
        Err(error) => not_run_outcome(&error),
        Ok(None) => ProgramOutcome::Killed,
        Ok(Some((status, _)))
            if status.code() == Some(host_program::NOT_EXECUTED_STATUS.into()) =>
        {
            not_run_outcome(&"see deploy/components/host-programs")
        }
        Ok(Some((status, text))) => ProgramOutcome::Exited(status, text),
    }
}

#[cfg(test)]
mod tests;
