//! `boathook class`: work on class files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use device_class::class::JSON_SCHEMA;
use device_class::config::Config;
use device_class::discover::{self, Found};
use device_class::host::{Entry, Recording};
use device_class::load::{self, ClassSource};
use device_class::starter::Target;
use device_class::{HostView, ownership};

use super::{CommandError, write_table};
use crate::cli::ClassCommand;
use crate::exit::ExitCode;
use crate::planner::{self, PlannerError};

/// Runs one of the commands.
pub(super) fn run(command: &ClassCommand, config: &Config) -> Result<ExitCode, CommandError> {
    match command {
        ClassCommand::Check { file } => return check(file, config),
        ClassCommand::Record { directory } => return record(directory, config),
        ClassCommand::New { device } => {
            let target = Target::parse(device)?;
            if let Target::Node { .. } = target {
                note_absence(Path::new(device), config)?;
            }
            io::stdout()
                .lock()
                .write_all(target.to_string().as_bytes())?;
        }
        ClassCommand::Schema => io::stdout().lock().write_all(JSON_SCHEMA.as_bytes())?,
    }
    Ok(ExitCode::Success)
}

/// A class can be written for a device that is not here, or not yet. Whoever
/// mistyped its path is told.
fn note_absence(path: &Path, config: &Config) -> Result<(), CommandError> {
    let host = planner::open_host(config)?;
    let what = match host.entry(path) {
        Ok(Some(Entry::Device(_))) => return Ok(()),
        Ok(Some(entry)) => format!("is {entry}, not a device"),
        Ok(None) => "is not on this host".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    crate::log::warning(&format!(
        "{} {what}; the class file is printed nevertheless",
        path.display()
    ));
    Ok(())
}

/// Reads one class file and shows what it matches on this host.
fn check(file: &Path, config: &Config) -> Result<ExitCode, CommandError> {
    let class = config.class(&ClassSource::read(file)?)?;
    let host = planner::open_host(config)?;
    let capabilities = class.spec.capabilities();
    let found = discover::look_up(&class, config, &capabilities, &host);
    let Found { inventory, edits } = found.map_err(PlannerError::from)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}: class {}: OK", file.display(), class.name)?;
    writeln!(out, "request variable: {}\n", class.spec.request.env)?;
    if let Err(error) = ownership::check(file) {
        writeln!(out, "warning: the hook refuses this file: {error}")?;
    }
    for warning in &inventory.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    if inventory.devices.is_empty() {
        writeln!(out, "no device of this class on this host")?;
        return Ok(ExitCode::Success);
    }
    let head = ["DEVICE", "INDEX", "RESOURCE", "HEALTH"].map(str::to_owned);
    let rows = inventory.devices.iter().map(|device| {
        let index = device.index.clone().unwrap_or("-".into());
        [
            device.id.to_string(),
            index,
            device.resource.to_string(),
            device.health.to_string(),
        ]
    });
    write_table(
        &mut out,
        &[head].into_iter().chain(rows).collect::<Vec<_>>(),
    )?;
    let mut unfit = edits.unfit().peekable();
    if unfit.peek().is_none() {
        return Ok(ExitCode::Success);
    }
    writeln!(out)?;
    for reason in unfit {
        writeln!(out, "error: {reason}")?;
    }
    Ok(ExitCode::Failure)
}

/// Writes what the classes look at on this host into `directory`.
fn record(directory: &Path, config: &Config) -> Result<ExitCode, CommandError> {
    let host = planner::open_host(config)?;
    let recording = Recording::new(&host);
    let mut found = Vec::new();
    for source in load::sources(&config.classes)? {
        let class = config.class(&source)?;
        match discover::look_up(&class, config, &class.spec.capabilities(), &recording) {
            Ok(has) if has.inventory.devices.is_empty() => {}
            Ok(_) => found.push(class.name.to_string()),
            // What is missing on the host is missing in the recording.
            Err(error) => crate::log::warning(&crate::log::chain(&error)),
        }
    }
    let path = directory.join("host.txt");
    let failed = |error| CommandError::File {
        path: path.clone(),
        error,
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let mut file = File::create_new(&path).map_err(failed)?;
    write!(file, "{recording}").map_err(failed)?;
    let found = if found.is_empty() {
        "no devices".to_owned()
    } else {
        format!("devices of {}", found.join(", "))
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {found}", path.display())?;
    writeln!(
        out,
        "review it before you send it: it contains serial numbers and other identifiers"
    )?;
    Ok(ExitCode::Success)
}
