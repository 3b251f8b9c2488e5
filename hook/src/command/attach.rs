//! `boathook attach`, `boathook detach` and `boathook refresh`.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use device_class::config::Config;
use device_class::load;
use device_class::name::excerpt;
use printable::{Form, Printable};
use serde::Serialize;
use serde_json::Value;

use super::containers::{self, Container};
use super::{CommandError, known_classes, print_json};
use crate::cli::{AttachArguments, DetachArguments, RefreshArguments, RunningContainer};
use crate::exit::ExitCode;
use crate::live::{self, Attaching, ContainerLocation, Detached, LiveError, Refreshing};
use crate::log;
use crate::oci::CdiGrant;
use crate::sys::deadline::{self, Deadline};

/// The container that a command changes. The output names the container, so that a user
/// notices if the command found another container than the intended one.
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

/// Prints the result of a command as JSON, and adds the container to it.
fn print_changed(changed: &ChangedContainer, done: &impl Serialize) -> Result<(), CommandError> {
    // The value is serialized to text and parsed again. This keeps the program small: a
    // conversion to `Value` would need another copy of the serializer for each type.
    let mut done: Value = serde_json::from_str(&serde_json::to_string_pretty(done)?)?;
    done["container"]["id"] = changed.id.as_str().into();
    if let Some(name) = &changed.name {
        done["container"]["name"] = name.as_str().into();
    }
    print_json(&done)
}

/// Attaches devices to a running container. With `--dry-run` it only prints the steps.
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
    let (found, changed) = begin(container, wanted, config)?;
    let of_container = |error| of_container(&found.id, error);
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
        live::prune_records(&config.host_root);
    }
    let mut out = Printable::new(io::stdout().lock(), Form::Lines);
    if *dry_run && !json && !plan.steps.is_empty() {
        write!(out, "{plan}")?;
        return Ok(ExitCode::Success);
    }
    report(match (json, plan.steps.is_empty()) {
        (true, _) => print_changed(&changed, &plan),
        (false, true) => writeln!(out, "{devices}: {changed} has it already").map_err(Into::into),
        (false, false) => writeln!(out, "{devices}: attached to {changed}").map_err(Into::into),
    });
    Ok(ExitCode::Success)
}

/// Detaches attached devices from a running container.
pub(super) fn detach(
    arguments: &DetachArguments,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (found, changed) = find(&arguments.container, config)?;
    crate::process::confine()?;
    let id = &changed.id;
    let is_its = |bundle: &Path| {
        let found = found.bundle.as_deref();
        found.is_none_or(|found| containers::is_same_bundle(found, bundle))
    };
    let detached = live::detach(id, is_its, &arguments.devices, config);
    let detached = detached.map_err(|error| match of_class(&arguments.devices, config) {
        Err(unknown) if matches!(error, LiveError::NotAttached(_)) => unknown,
        _ => of_container(id, error),
    })?;
    let Detached {
        devices,
        waiting,
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
        let done = serde_json::json!({
            "devices": devices, "not_awaited": waiting, "open_by": open_by, "not_removed": not_removed, "unseen": unseen,
        });
        report(print_changed(&changed, &done));
        return Ok(code);
    }
    let mut out = Printable::new(io::stdout().lock(), Form::Lines);
    for device in &devices {
        let (name, class) = (&device.device, &device.class);
        report(writeln!(out, "{name} of {class}: detached from {changed}").map_err(Into::into));
    }
    for awaited in &waiting {
        let (name, class) = (awaited.awaited.to_request(), &awaited.class);
        let text = format!("{changed} does not wait for {name} of {class} any more");
        report(writeln!(out, "{text}").map_err(Into::into));
    }
    let rest = match removed_rest {
        true => "what was left of detached devices is removed from",
        false => "nothing is attached to",
    };
    if devices.is_empty() && waiting.is_empty() && code == ExitCode::Success {
        report(writeln!(out, "{rest} {changed}").map_err(Into::into));
    }
    Ok(code)
}

/// A warning about open descriptors that a scan of /proc cannot find.
const IN_FLIGHT: &str = "a descriptor that is on its way between processes, or that io_uring \
     holds, cannot be seen: only a restart of the container makes sure that no process can use a \
     detached device";

/// Logs a failure to print the result. The failure does not change the exit code, because
/// the container was already changed successfully.
fn report(written: Result<(), CommandError>) {
    if let Err(error) = written {
        log::warning(&log::chain(&error));
    }
}

/// Returns an error if a device belongs to a class that does not exist on this host.
fn of_class(devices: &[CdiGrant], config: &Config) -> Result<(), CommandError> {
    let sources = load::each_source(&config.classes)?;
    let classes: Vec<_> = devices.iter().map(|it| it.class.clone()).collect();
    known_classes(&classes, sources.iter().flatten())
}

/// Updates the driver files of a running container after the host's driver was updated. With
/// `--dry-run` it only prints the steps.
pub(super) fn refresh(
    arguments: &RefreshArguments,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (found, changed) = begin(&arguments.container, &[], config)?;
    let of_container = |error| of_container(&found.id, error);
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
    let mut out = Printable::new(io::stdout().lock(), Form::Lines);
    report(match (json, plan.steps.is_empty(), arguments.dry_run) {
        (true, ..) => print_changed(&changed, &plan),
        (false, true, _) => writeln!(
            out,
            "{changed} has no file that the host has replaced since"
        )
        .map_err(Into::into),
        (false, false, true) => write!(out, "{plan}").map_err(Into::into),
        (false, false, false) => writeln!(
            out,
            "{changed} has the host's files; programs that run in it keep the old ones until they \
             are started again"
        )
        .map_err(Into::into),
    });
    Ok(ExitCode::Success)
}

fn of_container(id: &str, error: LiveError) -> CommandError {
    CommandError::Container {
        id: id.to_owned(),
        error: Box::new(CommandError::Live(error)),
    }
}

fn find(
    container: &RunningContainer,
    config: &Config,
) -> Result<(Container, ChangedContainer), CommandError> {
    let found = containers::named(&container.name, container.root.clone(), &config.host_root);
    let found = found.map_err(CommandError::no_container)?;
    let changed = ChangedContainer {
        id: found.id.clone(),
        name: found.name(&config.host_root),
    };
    Ok((found, changed))
}

/// Finds the container, and gives up what is not needed after that.
fn begin(
    container: &RunningContainer,
    devices: &[CdiGrant],
    config: &Config,
) -> Result<(ContainerLocation, ChangedContainer), CommandError> {
    of_class(devices, config)?;
    let (found, changed) = find(container, config)?;
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
    let found = ContainerLocation {
        id: found.id,
        pid,
        start_time: found.started,
        bundle,
    };
    Ok((found, changed))
}
