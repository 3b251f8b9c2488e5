//! `boathook prestart` and `boathook create-runtime`.

use std::io;

use device_class::config::Config;

use super::CommandError;
use crate::apply;
use crate::exit::ExitCode;
use crate::grant;
use crate::oci::{Bundle, State};

/// Gives the container whose State is on stdin what it asks for.
pub(super) fn run(config: &Config) -> Result<ExitCode, CommandError> {
    let state = State::read(io::stdin().lock())?;
    let whose = || format!("container {}: ", state.id);
    let bundle = Bundle::of(&state).map_err(|error| CommandError::Bundle {
        whose: whose(),
        error,
    })?;
    let plan = grant::plan_for(&bundle, config).map_err(|error| CommandError::Grant {
        whose: whose(),
        error,
    })?;
    if plan.grants.is_empty() {
        return Ok(ExitCode::Success);
    }
    let report =
        apply::apply(&plan, &state, &bundle, config).map_err(|error| CommandError::Apply {
            id: state.id.clone(),
            error,
        })?;
    for line in report {
        tracing::warn!("container {}: {line}", state.id);
    }
    Ok(ExitCode::Success)
}
