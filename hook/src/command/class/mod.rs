//! `boathook class`: work on class files.

mod check;
mod record;

use std::io::{self, Write};

use device_class::class::JSON_SCHEMA;
use device_class::config::Config;
use device_class::starter::Target;

use super::CommandError;
use crate::cli::ClassCommand;
use crate::exit::ExitCode;

/// Runs one of the commands.
pub(super) fn run(command: &ClassCommand, config: &Config) -> Result<ExitCode, CommandError> {
    match command {
        ClassCommand::Check { file } => return check::run(file, config),
        ClassCommand::Record { directory } => return record::run(directory, config),
        ClassCommand::New { device } => {
            let target = Target::parse(device)?;
            io::stdout()
                .lock()
                .write_all(target.to_string().as_bytes())?;
        }
        ClassCommand::Schema => io::stdout().lock().write_all(JSON_SCHEMA.as_bytes())?,
    }
    Ok(ExitCode::Success)
}
