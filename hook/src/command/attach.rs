//! `boathook attach` and `boathook detach`.

use std::io::{self, Write};
use std::path::PathBuf;

use device_class::config::Config;
use device_class::load;
use printable::{Form, Printable};

use super::containers;
use super::{CommandError, known_classes, print_json};
use crate::exit::ExitCode;
use crate::live::{self, Attaching, Detached, Found};
use crate::log;
use crate::oci::CdiGrant;
use crate::sys::deadline::{self, Deadline};

/// A container and devices, as the command line has them.
pub(super) struct Asked<'a> {
    pub(super) container: &'a str,
    pub(super) devices: &'a [CdiGrant],
    /// The state directory of the runtime.
    pub(super) root: Option<PathBuf>,
}

/// Attaches devices to a container that runs, or only prints the steps.
pub(super) fn attach(
    asked: Asked<'_>,
    force: bool,
    dry_run: bool,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let found = begin(&asked, config)?;
    let of_container = |error| CommandError::Container {
        id: found.id.clone(),
        error: Box::new(CommandError::Live(error)),
    };
    let deadline = Deadline::start(deadline::SECONDS).map_err(CommandError::Deadline)?;
    let planned = Attaching::plan(&found, asked.devices, force, config);
    let mut attaching = planned.map_err(of_container)?;
    deadline.cancel();
    if force {
        log::warning("--force: the kubelet may give the same devices to other pods");
    }
    let devices: Vec<String> = attaching
        .devices()
        .map(|(class, device)| format!("{device} of {class}"))
        .collect();
    let devices = devices.join(", ");
    let plan = attaching.plan.clone();
    if !dry_run {
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
    if dry_run && !plan.steps.is_empty() {
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

/// Takes attached devices away from a container that runs.
pub(super) fn detach(
    asked: Asked<'_>,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let found = begin(&asked, config)?;
    let detached = live::detach(&found, asked.devices, config);
    let detached = detached.map_err(|error| CommandError::Container {
        id: found.id.clone(),
        error: Box::new(CommandError::Live(error)),
    })?;
    let Detached {
        devices,
        warnings,
        open_by,
    } = detached;
    for warning in warnings {
        log::warning(&format!("container {}: {warning}", found.id));
    }
    for process in &open_by {
        log::warning(&format!(
            "process {} ({}) has device {} open, and can use it until it closes it",
            process.pid, process.program, process.device
        ));
    }
    if json {
        print_json(&serde_json::json!({ "devices": devices, "open_by": open_by }))?;
        return Ok(ExitCode::Success);
    }
    let mut out = Printable::new(io::stdout().lock(), Form::Lines);
    for device in &devices {
        let (name, class, id) = (&device.device, &device.class, &found.id);
        writeln!(out, "{name} of {class}: detached from container {id}")?;
    }
    if devices.is_empty() {
        writeln!(out, "nothing is attached to container {}", found.id)?;
    }
    Ok(ExitCode::Success)
}

/// Finds the container, and gives up what is not needed after that.
fn begin(asked: &Asked<'_>, config: &Config) -> Result<Found, CommandError> {
    let sources = load::each_source(&config.classes)?;
    let classes: Vec<_> = asked.devices.iter().map(|it| it.class.clone()).collect();
    known_classes(&classes, sources.iter().flatten())?;
    let found = containers::named(asked.container, asked.root.clone(), &config.host_root)
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
