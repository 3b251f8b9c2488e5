//! `boathook check`.
use super::CommandError;
use crate::exit::ExitCode;
use device_class::config::Config;
pub(super) fn run(_config: &Config) -> Result<ExitCode, CommandError> {
    Ok(ExitCode::Success)
}
