//! What a program executes: instructions, counted by valgrind, and system calls,
//! counted by strace. Neither depends on how busy the machine is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::captured::Captured;

/// Debian's packages valgrind and strace.
const VALGRIND: &str = "/usr/bin/valgrind";
const STRACE: &str = "/usr/bin/strace";

/// Why nothing can be counted here, if so.
pub fn missing() -> Option<String> {
    let absent = [VALGRIND, STRACE].iter().find(|p| !Path::new(p).is_file());
    absent.map(|program| format!("needs {program}"))
}

/// A copy of a program without symbols: valgrind reads them all before it starts the
/// program, which takes longer than the program.
pub fn without_symbols(program: &Path, directory: &Path) -> Result<PathBuf> {
    let copy = directory.join("without-symbols");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&copy).arg(program);
    Captured::run(&mut strip)?.success()?;
    Ok(copy)
}

/// A program and arguments before a command, to have its instructions counted.
///
/// valgrind executes the program itself and passes its system calls on. Those that
/// it does not know fail with ENOSYS.
pub fn instructions_to(file: &Path) -> Vec<String> {
    vec![
        VALGRIND.to_string(),
        "--tool=cachegrind".to_string(),
        "--cache-sim=no".to_string(),
        // A debugger's pipes in /tmp stay behind where the program is killed, and where
        // it enters another mount namespace.
        "--vgdb=no".to_string(),
        "--cachegrind-out-file=/dev/null".to_string(),
        format!("--log-file={}", file.display()),
    ]
}

/// The instructions that were counted.
pub fn instructions(file: &Path) -> Result<u64> {
    let text = read(file)?;
    // `==PID== I   refs:      1,234`
    let line = text.lines().find_map(|line| line.split_once("refs:"));
    let count = line.and_then(|(_, count)| count.trim().replace(',', "").parse().ok());
    count.with_context(|| format!("{} has no count: {text}", file.display()))
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
    let text = read(file)?;
    let calls = text
        .lines()
        .filter(|line| !line.starts_with(['-', '+']))
        .count();
    Ok(calls.try_into()?)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
