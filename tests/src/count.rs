//! Counts the system calls of a program with strace. Unlike a time, their number does not depend on
//! how busy the machine is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The path of strace (Debian's package strace).
const STRACE: &str = "/usr/bin/strace";

/// Returns the reason why system calls cannot be counted here, or `None` if they can.
pub fn missing() -> Option<String> {
    (!Path::new(STRACE).is_file()).then(|| format!("needs {STRACE}"))
}

/// Returns the words that are written before a command to count its system calls. The counts are
/// written to `file`.
pub fn calls_to(file: &Path) -> Vec<String> {
    vec![
        STRACE.to_string(),
        "-qq".to_string(),
        "-o".to_string(),
        file.display().to_string(),
        "--".to_string(),
    ]
}

/// Returns the number of system calls that strace has written to `file`, one on each line. Signals
/// count, too.
pub fn calls(file: &Path) -> Result<u64> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let calls = text
        .lines()
        .filter(|line| !line.starts_with(['-', '+']))
        .count();
    Ok(calls.try_into()?)
}
