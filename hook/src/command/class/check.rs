//! `boathook class check`.

use std::io::{self, Write};
use std::path::Path;

use device_class::config::Config;
use device_class::discover::{self, DriverRoot, Presence};
use device_class::load::ClassSource;

use crate::command::{CommandError, table};
use crate::exit::ExitCode;
use crate::grant;

/// Reads one class file and tells what it would find on this host.
pub(super) fn run(file: &Path, config: &Config) -> Result<ExitCode, CommandError> {
    let class = ClassSource::read(file)?.parse()?;
    let host = grant::open_root("the host's root", &config.host_root)?;
    let inventory = discover::devices(&class, &host);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}: class {} is well-formed",
        file.display(),
        class.name
    )?;
    writeln!(out, "asked for by {}\n", class.spec.request.env)?;
    for warning in &inventory.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    if inventory.devices.is_empty() {
        writeln!(out, "this host has no device of it")?;
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
    let capabilities = class.spec.capabilities();
    let driver = DriverRoot {
        view: &host,
        path: Path::new("/"),
    };
    let edits = discover::edits(
        &class,
        &capabilities,
        &inventory.host_attributes,
        &host,
        driver,
    )
    .map_err(|error| grant::GrantError::Edits {
        class: class.name.to_string(),
        error,
    })?;
    let missing = |unfit: &Presence<std::path::PathBuf>| match unfit {
        Presence::Unfit(reason) => Some(reason.clone()),
        Presence::Found(_) | Presence::Optional => None,
    };
    let libraries = edits
        .libraries
        .iter()
        .filter_map(|library| missing(&library.file));
    let files = edits.files.iter().filter_map(|file| missing(&file.file));
    let directories = edits
        .directories
        .iter()
        .filter_map(|d| missing(&d.directory));
    let mut lacks = libraries.chain(files).chain(directories).peekable();
    if lacks.peek().is_none() {
        return Ok(ExitCode::Success);
    }
    writeln!(out)?;
    for reason in lacks {
        writeln!(out, "error: {reason}")?;
    }
    Ok(ExitCode::Failure)
}
