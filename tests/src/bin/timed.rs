//! `timed FILE COMMAND [ARGUMENT...]` runs a command, which must succeed, and appends a line to the
//! file with the time that the command took, in milliseconds.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use harness::exit;
use harness::figure::time;

fn main() -> ExitCode {
    exit::with("timed", run())
}

fn run() -> Result<()> {
    const USAGE: &str = "usage: timed FILE COMMAND [ARGUMENT...]";
    let mut arguments = std::env::args_os().skip(1);
    let file = arguments.next().context(USAGE)?;
    let program = arguments.next().context(USAGE)?;
    let mut command = Command::new(&program);
    command.args(arguments);
    let time = time(&mut command)?;
    let mut file = OpenOptions::new().create(true).append(true).open(&file)?;
    writeln!(file, "{time}").context("cannot write the time")
}
