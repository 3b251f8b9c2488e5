//! `boathook class check`.

use std::io::{self, Write};
use std::path::Path;

use device_class::config::Config;
use device_class::discover::{self, Found};
use device_class::load::ClassSource;
use device_class::ownership;

use crate::command::{CommandError, table};
use crate::exit::ExitCode;
use crate::planner;

/// Reads one class file and shows what it matches on this host.
pub(super) fn run(file: &Path, config: &Config) -> Result<ExitCode, CommandError> {
    let class = config.class(&ClassSource::read(file)?)?;
    let host = planner::open_host(config)?;
    let capabilities = class.spec.capabilities();
    let found = discover::look_up(&class, config, &capabilities, &host);
    let Found { inventory, edits } = found.map_err(planner::PlannerError::from)?;
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
    table::write(
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
