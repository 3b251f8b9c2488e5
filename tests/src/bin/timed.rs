//! `timed FILE COMMAND [ARGUMENT...]`: runs a command to its success and adds a
//! line to the file: how long it took, in milliseconds.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use harness::exit;

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

    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        bail!("{} failed ({status})", program.display());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(&file)?;
    writeln!(file, "{time}").context("cannot write the time")
}
