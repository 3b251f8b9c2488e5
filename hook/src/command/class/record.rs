//! `boathook class record`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use device_class::config::Config;
use device_class::discover;
use device_class::host::Recording;
use device_class::load;

use crate::command::CommandError;
use crate::exit::ExitCode;
use crate::planner;

/// Writes what the classes look at on this host into `directory`.
pub(super) fn run(directory: &Path, config: &Config) -> Result<ExitCode, CommandError> {
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
        "look it over before you send it: it holds serial numbers and the like"
    )?;
    Ok(ExitCode::Success)
}
