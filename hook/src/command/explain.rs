//! `boathook explain`.

use std::io::{self, Write};
use std::path::Path;

use device_class::config::Config;

use super::CommandError;
use crate::exit::ExitCode;
use crate::grant;
use crate::oci::Bundle;

/// Prints the plan for a bundle, and changes nothing.
pub(super) fn run(bundle: &Path, json: bool, config: &Config) -> Result<ExitCode, CommandError> {
    let whose = String::new;
    let bundle = Bundle::read(bundle).map_err(|error| CommandError::Bundle {
        whose: whose(),
        error,
    })?;
    let plan = grant::plan_for(&bundle, config).map_err(|error| CommandError::Grant {
        whose: whose(),
        error,
    })?;
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &plan)?;
        writeln!(out)?;
    } else {
        write!(out, "{plan}")?;
    }
    Ok(ExitCode::Success)
}
