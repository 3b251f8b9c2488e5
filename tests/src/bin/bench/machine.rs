//! Describes the machine on which the figures are measured.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use harness::captured::Captured;
use harness::runc;
use serde::Serialize;

/// The properties of the machine by which figures of several machines can be compared.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    date: String,
    processor: String,
    cores: usize,
    kernel: String,
    runc: String,
    /// The load average of the last minute before the measurement.
    load_before: f64,
}

/// The highest load before the start with which the figures are reliable.
const QUIET: f64 = 0.5;

impl Machine {
    pub(crate) fn here() -> Result<Self> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
            .context("cannot read the kernel's release")?;
        Ok(Self {
            date: first_line(Command::new("date").arg("+%Y-%m-%d"))?,
            processor: processor()?,
            cores: available_parallelism()?.get(),
            kernel: kernel.trim().to_string(),
            runc: first_line(
                Command::new(runc::program().context("no runc on this machine")?).arg("--version"),
            )?,
            load_before: load()?,
        })
    }
}

impl Machine {
    /// Returns a warning if the machine was busy before the measurement.
    pub(crate) fn warning(&self) -> Option<String> {
        let busy = self.load_before > QUIET;
        busy.then(|| {
            format!(
                "warning: the machine is busy (load {}): wait, and run it again",
                self.load_before
            )
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            date,
            processor,
            cores,
            kernel,
            runc,
            ..
        } = self;
        write!(
            formatter,
            "{date}: {processor}, {cores} cores, Linux {kernel}, {runc}"
        )
    }
}

/// Returns the load average of the last minute, the first field of /proc/loadavg (proc_loadavg(5)).
fn load() -> Result<f64> {
    let averages = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    let minute = averages.split(' ').next().unwrap_or_default();
    minute
        .parse()
        .with_context(|| format!("/proc/loadavg has no load: {averages}"))
}

/// Returns the processor model in /proc/cpuinfo, a field that not every architecture has.
fn processor() -> Result<String> {
    let information = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Ok(model.map_or_else(
        || std::env::consts::ARCH.to_string(),
        |(_, model)| model.to_string(),
    ))
}

fn first_line(command: &mut Command) -> Result<String> {
    let printed = Captured::run(command)?.success()?.stdout;
    Ok(printed.lines().next().unwrap_or_default().to_string())
}
