//! `boathook attach`, `boathook detach` and `boathook refresh`.

use std::io::{self, Write};

use device_class::config::Config;
use device_class::load;
use printable::{Form, Printable};

use super::containers;
use super::{CommandError, known_classes, print_json};
use crate::cli::{AttachArguments, DetachArguments, RefreshArguments, RunningContainer};
use crate::exit::ExitCode;
use crate::live::{self, Attaching, Detached, Found, LiveError, Refreshing};
use crate::log;
use crate::oci::CdiGrant;
use crate::sys::deadline::{self, Deadline};

/// Attaches devices to a container that runs, or only prints the steps.
pub(super) fn attach(
    arguments: &AttachArguments,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let AttachArguments {
        container,
        devices: wanted,
        dry_run,
        force,
    } = arguments;
    let found = begin(container, wanted, config)?;
    let of_container = |error| of_container(&found, error);
    if !*dry_run {
        live::catch_up(&found.id, config).map_err(of_container)?;
    }
    let deadline = Deadline::start(deadline::SECONDS).map_err(CommandError::Deadline)?;
    let planned = Attaching::plan(&found, wanted, *force, config);
    let mut attaching = planned.map_err(of_container)?;
    deadline.cancel();
    if *force {
        log::warning("--force: the kubelet may give the same devices to other pods");
    }
    let devices: Vec<String> = attaching
        .devices()
        .map(|(class, device)| format!("{device} of {class}"))
        .collect();
    let devices = devices.join(", ");
    let plan = attaching.plan.clone();
    if !*dry_run {
        let mut warnings = std::mem::take(&mut attaching.plan.warnings);
        warnings.extend(live::attach(attaching, config).map_err(of_container)?);
        for warning in warnings {
            log::warning(&format!("container {}: {warning}", found.id));
        }
    }
    if json {
        print_json(&plan)?;
        return Ok(ExitCode::Success);
    }
    let mut out = Printable::new(io::stdout().lock(), Form::Lines);
    if *dry_run && !plan.steps.is_empty() {
        write!(out, "{plan}")?;
        return Ok(ExitCode::Success);
    }
    let id = &found.id;
    match plan.steps.is_empty() {
        true => writeln!(out, "{devices}: container {id} has it already")?,
        false => writeln!(out, "{devices}: attached to container {id}")?,
    }
    Ok(ExitCode::Success)
}

/// Takes attached devices away from a container.
pub(super) fn detach(
    arguments: &DetachArguments,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let id = &find_id(&arguments.container, config)?;
    crate::process::confine()?;
    let detached = live::detach(id, &arguments.devices, config);
    let detached = detached.map_err(|error| match of_class(&arguments.devices, config) {
        Err(unknown) if matches!(error, LiveError::NotAttached(_)) => unknown,
        _ => CommandError::Container {
            id: id.clone(),
            error: Box::new(CommandError::Live(error)),
        },
    })?;
    let Detached {
        devices,
        removed_rest,
        not_removed,
        warnings,
        open_by,
    } = detached;
    for warning in warnings {
        log::warning(&format!("container {id}: {warning}"));
    }
    for process in &open_by {
        log::warning(&process.to_string());
    }
    if !devices.is_empty() {
        log::warning(IN_FLIGHT);
    }
    let not_removed = not_removed.map(|error| log::chain(&error));
    if let Some(error) = &not_removed {
        log::warning(&format!(
            "container {id}: the device rules are revoked, but the nodes stay in the container's \
             mount namespace, where they cannot be opened: {error}"
        ));
    }
    let code = match not_removed.is_some() {
        true => ExitCode::NodeStays,
        false => ExitCode::Success,
    };
    if json {
        let unseen = (!devices.is_empty()).then_some(IN_FLIGHT);
        print_json(&serde_json::json!({
            "container": id, "devices": devices, "open_by": open_by, "not_removed": not_removed,
            "unseen": unseen,
        }))?;
        return Ok(code);
    }
    let mut out = Printable::new(io::stdout().lock(), Form::Lines);
    for device in &devices {
        let (name, class) = (&device.device, &device.class);
        writeln!(out, "{name} of {class}: detached from container {id}")?;
    }
    match (devices.is_empty(), removed_rest) {
        (true, true) if code == ExitCode::Success => writeln!(
            out,
            "what was left of detached devices is removed from container {id}"
        )?,
        (true, false) => writeln!(out, "nothing is attached to container {id}")?,
        _ => {}
    }
    Ok(code)
}

/// What no look at processes finds.
const IN_FLIGHT: &str = "a descriptor that is on its way between processes, or that io_uring \
     holds, cannot be seen: only a restart of the container makes sure that no process can use a \
     detached device";

/// The id of a container whose devices are to be detached: also of one whose bundle or processes
/// cannot be found any more.
fn find_id(container: &RunningContainer, config: &Config) -> Result<String, CommandError> {
    let name = &container.name;
    let is_id = match live::find_record(&config.host_root, name) {
        Ok(record) => record.is_some_and(|record| !record.has_ended()),
        // No container has such an id.
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => false,
        Err(_) => true,
    };
    if is_id {
        return Ok(name.clone());
    }
    let found = containers::named(name, container.root.clone(), &config.host_root);
    found.map(|found| found.id).or_else(|unknown| {
        let records = live::all_records(&config.host_root).into_iter();
        let mut ids = records.map(|it| it.id).filter(|id| id.starts_with(&**name));
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(id),
            _ => Err(CommandError::no_container(unknown)),
        }
    })
}

/// Refuses devices of which there is no class.
fn of_class(devices: &[CdiGrant], config: &Config) -> Result<(), CommandError> {
    let sources = load::each_source(&config.classes)?;
    let classes: Vec<_> = devices.iter().map(|it| it.class.clone()).collect();
    known_classes(&classes, sources.iter().flatten())
}

/// Exchanges the files of a driver that the host has replaced, or only prints the steps.
pub(super) fn refresh(
    arguments: &RefreshArguments,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let found = begin(&arguments.container, &[], config)?;
    let of_container = |error| of_container(&found, error);
    let deadline = Deadline::start(deadline::SECONDS).map_err(CommandError::Deadline)?;
    let mut refreshing = Refreshing::plan(&found, config).map_err(of_container)?;
    deadline.cancel();
    let plan = refreshing.plan.clone();
    if !arguments.dry_run {
        let mut warnings = std::mem::take(&mut refreshing.plan.warnings);
        warnings.extend(live::refresh(refreshing, config).map_err(of_container)?);
        for warning in warnings {
            log::warning(&format!("container {}: {warning}", found.id));
        }
    }
    if json {
        print_json(&plan)?;
        return Ok(ExitCode::Success);
    }
    let mut out = Printable::new(io::stdout().lock(), Form::Lines);
    let id = &found.id;
    match (plan.steps.is_empty(), arguments.dry_run) {
        (true, _) => writeln!(
            out,
            "container {id} has no file that the host has replaced since"
        )?,
        (false, true) => write!(out, "{plan}")?,
        (false, false) => writeln!(
            out,
            "container {id} has the host's files; programs that run in it keep the old ones until \
             they are started again"
        )?,
    }
    Ok(ExitCode::Success)
}

fn of_container(found: &Found, error: LiveError) -> CommandError {
    CommandError::Container {
        id: found.id.clone(),
        error: Box::new(CommandError::Live(error)),
    }
}

/// Finds the container, and gives up what is not needed after that.
fn begin(
    container: &RunningContainer,
    devices: &[CdiGrant],
    config: &Config,
) -> Result<Found, CommandError> {
    of_class(devices, config)?;
    let found = containers::named(&container.name, container.root.clone(), &config.host_root)
        .map_err(CommandError::no_container)?;
    let unknown = |what: &str, hint: &str| CommandError::NoContainer {
        reason: format!("{what} of container {}", found.id),
        hint: hint.to_owned(),
    };
    let pid = found
        .pid
        .ok_or_else(|| unknown("there is no process", "start it first"))?;
    let bundle = found.bundle.clone().ok_or_else(|| {
        let hint = "run this as root; for a runtime with another state directory use --root DIR";
        unknown("the bundle is not known", hint)
    })?;
    crate::process::confine()?;
    Ok(Found {
        id: found.id,
        pid,
        started: found.started,
        bundle,
    })
}
