//! `boathook prestart` and `boathook create-runtime`.

use std::io;

use device_class::config::Config;

use super::CommandError;
use crate::apply;
use crate::exit::ExitCode;
use crate::live;
use crate::log;
use crate::oci::{Bundle, State};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};

/// Gives the container whose State is on stdin what it requests.
pub(super) fn run(
    config: &Config,
    caller: &Caller,
    deadline: &mut Deadline,
) -> Result<ExitCode, CommandError> {
    let state = State::read(io::stdin().lock())?;
    deadline::concerns(&printable::line(&state.id));
    let warnings =
        give(&state, config, caller, deadline).map_err(|error| CommandError::Container {
            id: state.id.clone(),
            error: Box::new(error),
        })?;
    for warning in warnings {
        log::warning(&format!("container {}: {warning}", state.id));
    }
    Ok(ExitCode::Success)
}

fn give(
    state: &State,
    config: &Config,
    caller: &Caller,
    deadline: &mut Deadline,
) -> Result<Vec<String>, CommandError> {
    let bundle = Bundle::of(state)?;
    if let Caller::Cdi(grant) = caller
        && bundle.cdi.first() != Some(grant)
    {
        // The hook of the first device does the work for all.
        return Ok(Vec::new());
    }
    Stage::Planning.begin();
    let mut plan = planner::plan_for(&bundle, caller, config)?;
    let mut warnings = std::mem::take(&mut plan.warnings);
    if !plan.steps.is_empty() {
        log::open();
        let recorded = live::write_at_start(state, &state.bundle, &plan, &config.host_root);
        if let Err(error) = recorded {
            let error = log::chain(&error);
            warnings.push(format!("its devices will not be followed: {error}"));
        }
        warnings.extend(apply::apply(&plan, state, &bundle, config, deadline)?);
        for grant in &plan.grants {
            log::info(|| {
                let (devices, class) = (grant.devices.join(","), &grant.class);
                let devices = match devices.as_str() {
                    "" => "no device",
                    devices => devices,
                };
                let by = &grant.authorized_by;
                format!("container {}: {devices} of {class}, by {by}", state.id)
            });
        }
    }
    Ok(warnings)
}
