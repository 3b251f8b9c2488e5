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
    let notes = give(&state, config).map_err(|error| CommandError::Container {
        id: state.id.clone(),
        error: Box::new(error),
    })?;
    for note in notes {
        tracing::warn!("container {}: {note}", state.id);
    }
    Ok(ExitCode::Success)
}

fn give(state: &State, config: &Config) -> Result<Vec<String>, CommandError> {
    let bundle = Bundle::of(state)?;
    let plan = grant::plan_for(&bundle, config)?;
    if plan.steps.is_empty() {
        return Ok(Vec::new());
    }
    Ok(apply::apply(&plan, state, &bundle, config)?)
}
