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
    let warnings = give(&state, config).map_err(|error| CommandError::Container {
        id: state.id.clone(),
        error: Box::new(error),
    })?;
    for warning in warnings {
        tracing::warn!("container {}: {warning}", state.id);
    }
    Ok(ExitCode::Success)
}

fn give(state: &State, config: &Config) -> Result<Vec<String>, CommandError> {
    let bundle = Bundle::of(state)?;
    let mut plan = grant::plan_for(&bundle, config)?;
    let mut warnings = std::mem::take(&mut plan.warnings);
    if !plan.steps.is_empty() {
        warnings.extend(apply::apply(&plan, state, &bundle, config)?);
    }
    Ok(warnings)
}
