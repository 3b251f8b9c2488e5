//! Injects the requested devices at the start of a container: reads the container's state, computes
//! the plan, records and applies it.

use std::fs;
use std::io;

use device_class::config::Config;
use device_class::strict_toml::FileError;
use injection_plan::plan::{Grant, SpecRule};

use super::{StartError, StartOptions};
use crate::apply;
use crate::exit::ExitCode;
use crate::installation;
use crate::live;
use crate::log;
use crate::oci::{Bundle, CdiGrant, State, StateError};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};
use crate::wrapper;

/// Runs the hook: injects the requested devices into the container whose state (OCI runtime
/// specification, "State") is on stdin.
pub(super) fn inject_from_stdin(
    config: &Config,
    options: &StartOptions,
    deadline: &mut Deadline,
) -> Result<ExitCode, StartError> {
    let state = read_state()?;
    deadline::set_container(&printable::line(&state.id));
    let warnings = inject_devices(&state, config, options, deadline).map_err(|error| {
        StartError::Container {
            id: state.id.clone(),
            error: Box::new(error),
        }
    })?;
    for warning in warnings {
        log::warning(&format!("container {}: {warning}", state.id));
    }
    Ok(ExitCode::Success)
}

/// Reads the container's state from stdin, and corrects the path of the bundle by the command line
/// of the calling runtime. crun up to 1.29 reports its working directory as the bundle, and for a
/// container with devices and a user namespace a mount point in /var/tmp as the root.
fn read_state() -> Result<State, StateError> {
    let mut state = State::read(io::stdin().lock())?;
    if let Some(bundle) = wrapper::find_caller_bundle(&state.id)
        && fs::canonicalize(&bundle).ok() != fs::canonicalize(&state.bundle).ok()
    {
        state.bundle = bundle;
    }
    Ok(state)
}

/// Handles a configuration that cannot be read. A container that requests no devices is started
/// nevertheless, so that a mistake in config.toml does not stop all containers of the host.
pub(super) fn handle_config_error(
    error: FileError,
    options: &StartOptions,
) -> Result<ExitCode, StartError> {
    let caller = &options.caller;
    let Ok(state) = read_state() else {
        return Err(error.into());
    };
    let has_no_request = |bundle: &Bundle| {
        let config = installation::parse_config_despite_error(&error);
        config.is_some_and(|config| planner::requests_nothing(bundle, caller, &config))
    };
    // A container with masked paths is not started: boathook-runtime has removed these paths from
    // config.json, and they must not be visible.
    let requests_nothing = options.masked_paths.is_empty()
        && Bundle::from_state(&state).is_ok_and(|bundle| has_no_request(&bundle));
    if !requests_nothing {
        return Err(StartError::Container {
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

fn unknown_grant_error(grant: &CdiGrant) -> StartError {
    StartError::UnknownGrant {
        class: grant.class.clone(),
        device: grant.devices.to_string(),
    }
}

/// Injects the devices into the container and returns warnings.
fn inject_devices(
    state: &State,
    config: &Config,
    options: &StartOptions,
    deadline: &mut Deadline,
) -> Result<Vec<String>, StartError> {
    state.check()?;
    let mut bundle = Bundle::from_state(state)?;
    let caller = &options.caller;
    bundle
        .masked_paths
        .covered_by_hook
        .clone_from(&options.masked_paths);
    if let Caller::Cdi(grant) = caller {
        // The container has one hook for each CDI device, and the first of these hooks injects all
        // devices.
        match bundle
            .cdi_grants
            .iter()
            .position(|cdi_grant| cdi_grant == grant)
        {
            Some(0) => {}
            Some(_) => return Ok(Vec::new()),
            None => return Err(unknown_grant_error(grant)),
        }
    }
    Stage::Planning.begin();
    let mut plan = planner::plan_injection_for(&bundle, caller, config)?;
    let mut warnings = std::mem::take(&mut plan.warnings);
    warnings.extend(plan.grants.iter().flat_map(Grant::describe_awaited_devices));
    if !plan.steps.is_empty() || plan.has_awaited_devices() {
        log::open();
        match live::write_at_start(state, &bundle, &plan, &config.host_root) {
            // The recorded rules may be from an earlier call of the hook. If a device program is
            // generated again, it must have them too.
            Ok(rules) => {
                let rules = rules.iter().map(SpecRule::from);
                bundle.spec_devices.rules.extend(rules);
            }
            Err(error) => {
                let error = log::format_error_chain(&error);
                warnings.push(format!("its devices will not be followed: {error}"));
            }
        }
        if !plan.steps.is_empty() {
            warnings.extend(apply::apply_plan(&plan, state, &bundle, config, deadline)?);
        }
        for grant in &plan.grants {
            let (devices, class) = (grant.describe_devices(), &grant.class);
            let devices = match devices.as_str() {
                "" => "no device",
                devices => devices,
            };
            let authority = &grant.authorized_by;
            let id = &state.id;
            log::record_action(&format!(
                "container {id}: {devices} of {class}, by {authority}"
            ));
        }
    }
    Ok(warnings)
}
