//! `boathook prestart` and `boathook create-runtime`.

use std::fs;
use std::io;

use device_class::config::Config;
use device_class::strict_toml::FileError;

use super::CommandError;
use crate::apply;
use crate::exit::ExitCode;
use crate::installation;
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

/// A mistake in config.toml does not stop a container that requests nothing, unless the file
/// says which classes there are.
pub(super) fn unconfigured(error: FileError, caller: &Caller) -> Result<ExitCode, CommandError> {
    let Ok(state) = State::read(io::stdin().lock()) else {
        return Err(error.into());
    };
    let text = fs::read_to_string(error.path()).unwrap_or_default();
    let names_classes = text
        .lines()
        .any(|line| line.trim_start().starts_with("clas"));
    let config = installation::installed(Config::default());
    let nothing =
        |bundle: &Bundle| !names_classes && planner::requests_nothing(bundle, caller, &config);
    if !Bundle::of(&state).is_ok_and(|bundle| nothing(&bundle)) {
        return Err(CommandError::Container {
            id: state.id,
            error: Box::new(error.into()),
        });
    }
    log::warning(&format!(
        "container {} requests nothing and is started: {error}",
        state.id
    ));
    Ok(ExitCode::Success)
}

fn give(
    state: &State,
    config: &Config,
    caller: &Caller,
    deadline: &mut Deadline,
) -> Result<Vec<String>, CommandError> {
    state.check()?;
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
        let recorded = live::write_at_start(state, &bundle, &plan, &config.host_root);
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
