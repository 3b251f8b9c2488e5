//! The system calls that a program executes, counted by strace: their number does not
//! depend on how busy the machine is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Debian's package strace.
const STRACE: &str = "/usr/bin/strace";

/// Returns the reason why system calls cannot be counted here, or `None` if they can.
pub fn missing() -> Option<String> {
    (!Path::new(STRACE).is_file()).then(|| format!("needs {STRACE}"))
}

/// A program and arguments before a command, to have its system calls counted.
pub fn calls_to(file: &Path) -> Vec<String> {
    vec![
        STRACE.to_string(),
        "-qq".to_string(),
        "-o".to_string(),
        file.display().to_string(),
        "--".to_string(),
    ]
}

/// The system calls that were counted. Each is a line, and so is a signal.
pub fn calls(file: &Path) -> Result<u64> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let calls = text
        .lines()
        .filter(|line| !line.starts_with(['-', '+']))
        .count();
    Ok(calls.try_into()?)
}
