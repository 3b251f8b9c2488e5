//! Injects the requested devices when a container starts: reads the container's state, computes the
//! injection plan, writes the attachment record, and applies the plan.

use std::fs;
use std::io;

use device_class::config::Config;
use device_class::strict_toml::FileError;
use host_files::printable;
use injection_plan::plan::{Grant, SpecRule};

use super::{StartError, StartOptions};
use crate::apply;
use crate::attachment;
use crate::exit::ExitCode;
use crate::installation;
use crate::log;
use crate::oci::{Bundle, CdiGrant, State, StateError};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};
use crate::wrapper;

/// Injects the requested devices into a container. Reads the container's state from stdin (OCI
/// runtime specification, "State").
pub(super) fn inject_from_stdin(
    config: &Config,
    options: &StartOptions,
    deadline: &mut Deadline,
) -> Result<ExitCode, StartError> {
    let state = read_state()?;
    deadline::set_container_id(&printable::escape_line(&state.id));
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

/// Reads the container's state from stdin. crun up to 1.29 may report its working directory as the
/// bundle. So if the runtime's command line names another bundle, that one is used.
fn read_state() -> Result<State, StateError> {
    let mut state = State::read(io::stdin().lock())?;
    if let Some(bundle) = wrapper::find_caller_bundle(&state.id)
        && fs::canonicalize(&bundle).ok() != fs::canonicalize(&state.bundle).ok()
    {
        state.bundle = bundle;
    }
    Ok(state)
}

/// Handles an error in config.toml. Returns the error only if the container may need the hook. All
/// other containers start, because one mistake in config.toml must not stop all containers of the
/// host.
pub(super) fn ignore_irrelevant_config_error(
    error: FileError,
    options: &StartOptions,
) -> Result<ExitCode, StartError> {
    let caller = &options.caller;
    let Ok(state) = read_state() else {
        return Err(error.into());
    };
    let requests_no_device = |bundle: &Bundle| {
        let config = installation::parse_class_dirs_only(&error);
        config.is_some_and(|config| planner::requests_nothing(bundle, caller, &config))
    };
    // If the hook must mask paths, the container does not start either. `boathook-runtime` removed
    // these paths from config.json, so nothing else would mask them.
    let requests_nothing = options.masked_paths.is_empty()
        && Bundle::from_state(&state).is_ok_and(|bundle| requests_no_device(&bundle));
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

fn create_unknown_grant_error(grant: &CdiGrant) -> StartError {
    StartError::UnknownGrant {
        class: grant.class.clone(),
        device: grant.devices.to_string(),
    }
}

/// Injects the requested devices into the container. Returns warnings for the administrator, which
/// the caller logs.
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
        .removed_masked_paths
        .clone_from(&options.masked_paths);
    if let Caller::Cdi(grant) = caller {
        // config.json contains one hook for each CDI device. The first of these hooks injects all
        // the devices, and the others do nothing.
        match bundle
            .cdi_grants
            .iter()
            .position(|cdi_grant| cdi_grant == grant)
        {
            Some(0) => {}
            Some(_) => return Ok(Vec::new()),
            None => return Err(create_unknown_grant_error(grant)),
        }
    }
    Stage::Planning.begin();
    let mut plan = planner::plan_container_injection(&bundle, caller, config)?;
    let mut warnings = std::mem::take(&mut plan.warnings);
    warnings.extend(plan.grants.iter().flat_map(Grant::describe_awaited_devices));
    if !plan.steps.is_empty() || plan.has_awaited_devices() {
        log::open_node_log();
        match attachment::write_start_record(state, &bundle, &plan, &config.host_root) {
            // An earlier call of the hook for this container may have allowed other devices. The
            // attachment record contains their rules. A new device program must allow them too.
            Ok(recorded_rules) => {
                let recorded_rules = recorded_rules.iter().map(SpecRule::from);
                bundle.spec_devices.rules.extend(recorded_rules);
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
            log::log_container_change(&format!(
                "container {id}: {devices} of {class}, by {authority}"
            ));
        }
    }
    Ok(warnings)
}
