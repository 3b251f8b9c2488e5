//! Implements `boathook attach`, `boathook detach` and `boathook refresh`, which change running
//! containers.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use crate::live::{
    ContainerChangeError, ContainerLocation, DetachResult, PlannedAttachment, PlannedRefresh,
};
use device_class::config::Config;
use device_class::load;
use device_class::name::excerpt;
use hook::attachment;
use hook::exit::ExitCode;
use hook::log;
use hook::oci::CdiGrant;
use hook::sys::deadline::{self, Deadline};
use host_files::printable::{EscapingWriter, OutputFormat};
use serde::Serialize;
use serde_json::Value;

use super::containers::{self, Container};
use super::{CommandError, check_class_names, print_json};
use crate::cli::{AttachArguments, DetachArguments, RefreshArguments, RunningContainer};

/// The container that a command changes. The output contains its id and name, so a user notices if
/// the command changed the wrong container.
struct ChangedContainer {
    id: String,
    name: Option<String>,
}

impl fmt::Display for ChangedContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {}", self.id)?;
        match &self.name {
            Some(name) => write!(f, " ({})", excerpt(name)),
            None => Ok(()),
        }
    }
}

/// Prints the result of a command as a JSON object. Adds the id and the name of the container under
/// the key `container`.
fn print_json_result(
    changed_container: &ChangedContainer,
    result: &impl Serialize,
) -> Result<(), CommandError> {
    // The value is converted to text and parsed again. A direct conversion to `Value` would compile
    // one more serializer for each type and make the program larger.
    let mut json_result: Value = serde_json::from_str(&serde_json::to_string_pretty(result)?)?;
    json_result["container"]["id"] = changed_container.id.as_str().into();
    if let Some(name) = &changed_container.name {
        json_result["container"]["name"] = name.as_str().into();
    }
    print_json(&json_result)
}

/// Implements `boathook attach`: gives devices to a running container, as if it had been started
/// with them. With `--dry-run`, prints the steps of the plan and changes nothing.
pub(super) fn attach(
    arguments: &AttachArguments,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let AttachArguments {
        container,
        devices: requested_devices,
        is_dry_run,
        is_forced,
    } = arguments;
    let (location, changed_container) =
        locate_running_container(container, requested_devices, config)?;
    let to_error = |error| container_error(&location.id, error);
    if !*is_dry_run {
        crate::live::update_container(&location.id, config).map_err(to_error)?;
    }
    let deadline = Deadline::start(deadline::DEADLINE_SECONDS).map_err(CommandError::Deadline)?;
    let mut planned_attachment =
        PlannedAttachment::plan(&location, requested_devices, *is_forced, config)
            .map_err(to_error)?;
    deadline.cancel();
    if *is_forced {
        log::warning("--force: the kubelet may give the same devices to other pods");
    }
    let devices = planned_attachment
        .devices()
        .map(|(class, device)| format!("{device} of {class}"))
        .collect::<Vec<_>>()
        .join(", ");
    let plan = planned_attachment.plan.clone();
    if !*is_dry_run {
        let mut warnings = std::mem::take(&mut planned_attachment.plan.warnings);
        warnings.extend(crate::live::attach(planned_attachment, config).map_err(to_error)?);
        for warning in warnings {
            log::warning(&format!("container {}: {warning}", location.id));
        }
        if !plan.steps.is_empty() {
            log::enable_action_log(&config.host_root);
            log::log_container_change(&format!("container {}: {devices}, attached", location.id));
        }
        attachment::prune_records(&config.host_root);
    }
    let mut out = EscapingWriter::new(io::stdout().lock(), OutputFormat::Lines);
    if *is_dry_run && !as_json && !plan.steps.is_empty() {
        write!(out, "{plan}")?;
        return Ok(ExitCode::Success);
    }
    log_output_failure(match (as_json, plan.steps.is_empty()) {
        (true, _) => print_json_result(&changed_container, &plan),
        (false, true) => {
            writeln!(out, "{devices}: {changed_container} has it already").map_err(Into::into)
        }
        (false, false) => {
            writeln!(out, "{devices}: attached to {changed_container}").map_err(Into::into)
        }
    });
    Ok(ExitCode::Success)
}

/// Implements `boathook detach`: takes attached devices away from a running container. Returns
/// `ExitCode::NodeStays` if the device rules are revoked but a device node could not be removed.
pub(super) fn detach(
    arguments: &DetachArguments,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (container, changed_container) = find_container(&arguments.container, config)?;
    hook::process::drop_privileges()?;
    let id = &changed_container.id;
    let is_bundle_of_container = |bundle: &Path| {
        let known_bundle = container.bundle.as_deref();
        known_bundle.is_none_or(|known_bundle| containers::is_same_bundle(known_bundle, bundle))
    };
    let detach_result = crate::live::detach(id, is_bundle_of_container, &arguments.devices, config);
    let detach_result =
        detach_result.map_err(
            |error| match check_device_classes(&arguments.devices, config) {
                Err(unknown_class) if matches!(error, ContainerChangeError::NotAttached(_)) => {
                    unknown_class
                }
                _ => container_error(id, error),
            },
        )?;
    let DetachResult {
        devices,
        cancelled_requests,
        has_removed_leftover_files,
        removal_error,
        warnings,
        holders,
    } = detach_result;
    for warning in warnings {
        log::warning(&format!("container {id}: {warning}"));
    }
    log::enable_action_log(&config.host_root);
    for device in &devices {
        let (name, class) = (&device.device_id, &device.class);
        log::log_container_change(&format!("container {id}: {name} of {class}, detached"));
    }
    for process in &holders {
        log::warning(&process.to_string());
    }
    if !devices.is_empty() {
        log::warning(IN_FLIGHT_WARNING);
    }
    let removal_error = removal_error.map(|error| log::format_error_chain(&error));
    if let Some(error) = &removal_error {
        log::warning(&format!(
            "container {id}: the device rules are revoked, but the nodes stay in the container's \
             mount namespace, where they cannot be opened: {error}"
        ));
    }
    let code = if removal_error.is_some() {
        ExitCode::NodeStays
    } else {
        ExitCode::Success
    };
    if as_json {
        let in_flight_warning = (!devices.is_empty()).then_some(IN_FLIGHT_WARNING);
        let result = serde_json::json!({
            "devices": devices, "not_awaited": cancelled_requests, "open_by": holders, "not_removed": removal_error, "unseen": in_flight_warning,
        });
        log_output_failure(print_json_result(&changed_container, &result));
        return Ok(code);
    }
    let mut out = EscapingWriter::new(io::stdout().lock(), OutputFormat::Lines);
    for device in &devices {
        let (name, class) = (&device.device_id, &device.class);
        log_output_failure(
            writeln!(out, "{name} of {class}: detached from {changed_container}")
                .map_err(Into::into),
        );
    }
    for request in &cancelled_requests {
        let (name, class) = (request.awaited_device.to_request_text(), &request.class);
        let text = format!("{changed_container} does not wait for {name} of {class} any more");
        log_output_failure(writeln!(out, "{text}").map_err(Into::into));
    }
    let outcome = if has_removed_leftover_files {
        "what was left of detached devices is removed from"
    } else {
        "nothing is attached to"
    };
    if devices.is_empty() && cancelled_requests.is_empty() && code == ExitCode::Success {
        log_output_failure(writeln!(out, "{outcome} {changed_container}").map_err(Into::into));
    }
    Ok(code)
}

/// The warning of `boathook detach` that processes may still have the device open. A scan of
/// `/proc` does not show every open file descriptor.
const IN_FLIGHT_WARNING: &str = "a descriptor that is on its way between processes, or that io_uring \
     holds, cannot be seen: only a restart of the container makes sure that no process can use a \
     detached device";

/// Logs an error that occurred while printing the result of a command. The error does not change
/// the exit code, because the command has already changed the container.
fn log_output_failure(print_result: Result<(), CommandError>) {
    if let Err(error) = print_result {
        log::warning(&log::format_error_chain(&error));
    }
}

/// Checks that this host has a class file for the class of each device. Otherwise returns an error
/// with the unknown class and, if there is one, a class with a similar name.
fn check_device_classes(devices: &[CdiGrant], config: &Config) -> Result<(), CommandError> {
    let sources = load::read_each_source(&config.classes)?;
    let class_names: Vec<_> = devices.iter().map(|device| device.class.clone()).collect();
    check_class_names(&class_names, sources.iter().flatten())
}

/// Implements `boathook refresh`: gives a running container the host's current driver files after
/// the host's driver was updated. With `--dry-run`, prints the steps of the plan and changes
/// nothing.
pub(super) fn refresh(
    arguments: &RefreshArguments,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (location, changed_container) =
        locate_running_container(&arguments.container, &[], config)?;
    let to_error = |error| container_error(&location.id, error);
    let deadline = Deadline::start(deadline::DEADLINE_SECONDS).map_err(CommandError::Deadline)?;
    let mut planned_refresh = PlannedRefresh::plan(&location, config).map_err(to_error)?;
    deadline.cancel();
    let plan = planned_refresh.plan.clone();
    if !arguments.is_dry_run {
        let mut warnings = std::mem::take(&mut planned_refresh.plan.warnings);
        warnings.extend(crate::live::refresh(planned_refresh, config).map_err(to_error)?);
        for warning in warnings {
            log::warning(&format!("container {}: {warning}", location.id));
        }
        if !plan.steps.is_empty() {
            log::enable_action_log(&config.host_root);
            let id = &location.id;
            log::log_container_change(&format!(
                "container {id}: it has the host's driver files again"
            ));
        }
    }
    let mut out = EscapingWriter::new(io::stdout().lock(), OutputFormat::Lines);
    log_output_failure(match (as_json, plan.steps.is_empty(), arguments.is_dry_run) {
        (true, ..) => print_json_result(&changed_container, &plan),
        (false, true, _) => writeln!(out, "{changed_container} has no file that the host has replaced since")
            .map_err(Into::into),
        (false, false, true) => write!(out, "{plan}").map_err(Into::into),
        (false, false, false) => writeln!(
            out,
            "{changed_container} has the host's files; programs that run in it keep the old ones until they \
             are started again"
        )
        .map_err(Into::into),
    });
    Ok(ExitCode::Success)
}

fn container_error(id: &str, error: ContainerChangeError) -> CommandError {
    CommandError::Container {
        id: id.to_owned(),
        error: Box::new(CommandError::Live(error)),
    }
}

fn find_container(
    selector: &RunningContainer,
    config: &Config,
) -> Result<(Container, ChangedContainer), CommandError> {
    let RunningContainer {
        id_or_name,
        state_root,
    } = selector;
    let container =
        containers::find_by_id_or_name(id_or_name, state_root.clone(), &config.host_root)
            .map_err(CommandError::from_container_lookup_error)?;
    let changed_container = ChangedContainer {
        id: container.id.clone(),
        name: container.name(&config.host_root),
    };
    Ok((container, changed_container))
}

/// Finds a running container with its init process and its bundle, and then drops the privileges
/// that only this search needs. Returns an error if `devices` contains an unknown class.
fn locate_running_container(
    selector: &RunningContainer,
    devices: &[CdiGrant],
    config: &Config,
) -> Result<(ContainerLocation, ChangedContainer), CommandError> {
    check_device_classes(devices, config)?;
    let (container, changed_container) = find_container(selector, config)?;
    let missing_part_error = |missing_part: &str, hint: &str| CommandError::NoContainer {
        reason: format!("{missing_part} of container {}", container.id),
        hint: hint.to_owned(),
    };
    let pid = container
        .pid
        .ok_or_else(|| missing_part_error("there is no process", "start it first"))?;
    let bundle = container.bundle.clone().ok_or_else(|| {
        let hint = "run this as root; for a runtime with another state directory use --root DIR";
        missing_part_error("the bundle is not known", hint)
    })?;
    hook::process::drop_privileges()?;
    let location = ContainerLocation {
        id: container.id,
        pid,
        start_time: container.start_time,
        bundle_dir: bundle,
    };
    Ok((location, changed_container))
}
