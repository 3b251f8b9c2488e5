//! The machine that the figures are of.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use harness::captured::Captured;
use harness::runc;
use serde::Serialize;

/// The properties that a reader needs to compare figures.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    date: String,
    processor: String,
    cores: usize,
    kernel: String,
    runc: String,
    /// The load average of the minute before.
    load_before: f64,
}

/// With a higher load before the start, the figures are unreliable.
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
    /// A warning if the machine was busy with something else.
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

/// The first figure of /proc/loadavg (proc_loadavg(5)).
fn load() -> Result<f64> {
    let averages = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    let minute = averages.split(' ').next().unwrap_or_default();
    minute
        .parse()
        .with_context(|| format!("/proc/loadavg has no load: {averages}"))
}

/// The model in /proc/cpuinfo, which not every architecture has.
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
