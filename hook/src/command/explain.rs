//! `boathook explain`.

use std::io::{self, Write};
use std::path::Path;

use device_class::config::Config;

use super::CommandError;
use crate::exit::ExitCode;
use crate::log::Printable;
use crate::oci::Bundle;
use crate::planner;

/// Prints the plan for a bundle, and changes nothing.
pub(super) fn run(bundle: &Path, json: bool, config: &Config) -> Result<ExitCode, CommandError> {
    let bundle = Bundle::read(bundle)?;
    let plan = planner::plan_for(&bundle, config)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?;
    } else {
        // The plan has texts of the container's in it.
        write!(Printable(out), "{plan}")?;
    }
    Ok(ExitCode::Success)
}
