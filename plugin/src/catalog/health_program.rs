//! One run of a program of the host that reports whether devices are healthy.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use device_class::discover::{Health, HealthCommand};
use device_class::ownership;
use injection_plan::program_output::ProgramOutput;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::host_program;

/// The interval at which a running program is polled.
const INTERVAL: Duration = Duration::from_millis(20);

/// The length of a program's output that is kept, in bytes; the rest is read and dropped.
const MAX_OUTPUT: usize = 64 * 1024;

/// How long to wait for a killed program, which may be blocked in the kernel.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// How a run ended. One run may judge several devices.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// It exited, and printed this.
    Exited(ExitStatus, String),
    /// It took too long and was killed.
    Killed,
    /// It could not be run, which does not change a device's health.
    NotRun(String),
}

impl Outcome {
    /// What it means for the device of a command.
    pub(super) fn health(&self, command: &HealthCommand) -> Health {
        let fault = match self {
            Outcome::Exited(status, text) => command.fault(*status, text),
            Outcome::Killed => Some(command.timed_out()),
            Outcome::NotRun(_) => None,
        };
        match fault {
            None => Health::Healthy,
            Some(reason) => Health::Unhealthy { reason },
        }
    }
}

/// Runs a program of the host whose root is at `root`.
pub(super) fn run(command: &HealthCommand, root: &Path) -> Outcome {
    let HealthCommand {
        program,
        arguments,
        timeout,
        ..
    } = command;
    let not_run = |reason: &dyn std::fmt::Display| {
        Outcome::NotRun(format!("{} cannot be run: {reason}", program.display()))
    };
    if let Err(error) = ownership::program(root, program) {
        return not_run(&error);
    }
    match ended(host_program::command(root, program, arguments), *timeout) {
        Err(error) => not_run(&error),
        Ok(None) => Outcome::Killed,
        Ok(Some((status, _))) if status.code() == Some(host_program::NOT_RUN.into()) => {
            not_run(&"see deploy/components/host-programs")
        }
        Ok(Some((status, text))) => Outcome::Exited(status, text),
    }
}

/// How a program ended, and the beginning of its output; `None` if it was killed. The
/// processes that it leaves in its group are killed, too.
fn ended(mut command: Command, timeout: Duration) -> io::Result<Option<(ExitStatus, String)>> {
    let deadline = Instant::now() + timeout;
    let mut child = command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pipe = child.stdout.take();
    let pipe = pipe.ok_or_else(|| io::Error::other("its output has no pipe"))?;
    let mut output = ProgramOutput::new(pipe, MAX_OUTPUT)?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let mut in_time = true;
    // Its id, which is the group's, stays its own until it is waited for.
    while in_time && waitid(Id::Pid(group), flags)? == WaitStatus::StillAlive {
        output.read();
        in_time = Instant::now() < deadline;
        thread::sleep(INTERVAL);
    }
    // A program that has left its group may have left nothing in it.
    let _ = killpg(group, Signal::SIGKILL);
    child.kill()?;
    output.read();
    let give_up = Instant::now() + KILLED_WITHIN;
    loop {
        match child.try_wait()? {
            Some(status) if in_time => return Ok(Some((status, output.text()))),
            None if Instant::now() < give_up => thread::sleep(INTERVAL),
            _ => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
