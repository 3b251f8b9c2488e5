//! Loops that no file shows: a script or a copy of this program as the real
//! runtime, which calls this one again.

use std::path::Path;
use std::process::Command;

use super::WrapperError;

/// How many wrappers stand above a process.
const VARIABLE: &str = "BOATHOOK_RUNTIME_LEVEL";

/// Engines inside hooks of engines are odd, but no loop.
const MOST: u32 = 8;

/// Counts this program among those above the one to be started.
pub(super) fn rise(command: &mut Command, runtime: &Path) -> Result<(), WrapperError> {
    let above = std::env::var(VARIABLE).ok();
    let above: u32 = above.and_then(|level| level.parse().ok()).unwrap_or(0);
    if above >= MOST {
        return Err(WrapperError::Recursion(runtime.into()));
    }
    command.env(VARIABLE, (above + 1).to_string());
    Ok(())
}
