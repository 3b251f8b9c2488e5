//! Runs commands to their end and captures their output.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The default time limit of a command. No command that works exceeds it, not even the slowest
/// command of `make`.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The result of a finished command.
#[derive(Debug)]
pub struct Captured {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// The command, for messages.
    command: String,
}

impl Captured {
    /// Runs `command` with an empty standard input, and waits until it ends.
    pub fn run(command: &mut Command) -> Result<Self> {
        Self::run_within(LIMIT, command)
    }

    /// Runs `command` like [`Self::run`], and kills it after `limit`. This is for a command that
    /// waits for a daemon, which may hang.
    pub fn run_within(limit: Duration, command: &mut Command) -> Result<Self> {
        Self::run_with(limit, command, Stdio::null())
    }

    /// Runs `command` with `input` on its standard input, and waits until it ends.
    pub fn run_with_input(command: &mut Command, input: &[u8]) -> Result<Self> {
        let mut file = tempfile::tempfile().context("no file for the input")?;
        file.write_all(input)?;
        file.rewind()?;
        Self::run_with(LIMIT, command, file.into())
    }

    /// Runs a command whose output goes to unnamed files. It does not go to pipes, because `runc
    /// create` leaves a process that keeps both ends open, so that reading a pipe would never end.
    fn run_with(limit: Duration, command: &mut Command, stdin: Stdio) -> Result<Self> {
        let mut stdout = tempfile::tempfile().context("no file for the output")?;
        let mut stderr = tempfile::tempfile().context("no file for the errors")?;
        let child = command
            .stdin(stdin)
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let ended = wait_within(limit, child)?;
        let (stdout, stderr) = (read_back(&mut stdout)?, read_back(&mut stderr)?);
        let Some(status) = ended else {
            bail!("{command:?} has not ended after {limit:?}; it wrote: {stderr}{stdout}");
        };
        Ok(Self {
            status,
            stdout,
            stderr,
            command: format!("{command:?}"),
        })
    }

    /// Creates the result of a command that was run elsewhere, such as in a virtual machine.
    pub(crate) fn from_output(
        command: &str,
        status: ExitStatus,
        stdout: String,
        stderr: String,
    ) -> Self {
        Self {
            status,
            stdout,
            stderr,
            command: command.to_string(),
        }
    }

    /// Returns the result if the command succeeded, and otherwise an error with its output.
    pub fn success(self) -> Result<Self> {
        if !self.status.success() {
            bail!(
                "{} failed ({}): {}{}",
                self.command,
                self.status,
                self.stderr.trim_end(),
                self.stdout.trim_end()
            );
        }
        Ok(self)
    }
}

/// Waits for the process and returns its status. Returns `None` if the process was killed because
/// it did not end within `limit`.
fn wait_within(limit: Duration, mut child: Child) -> Result<Option<ExitStatus>> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let (ended, watched) = channel::<()>();
    let watch = thread::spawn(move || {
        let is_over = watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        is_over && kill(pid, Signal::SIGKILL).is_ok()
    });
    let status = child.wait();
    drop(ended);
    let was_killed = watch.join().unwrap_or_default();
    Ok((!was_killed).then_some(status?))
}

/// Returns the whole content of a file, with invalid UTF-8 replaced.
pub(crate) fn read_back(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_killed() {
        for (seconds, ends) in [("0", true), ("1000", false)] {
            let child = Command::new("sleep").arg(seconds).spawn().unwrap();
            let limit = Duration::from_millis(if ends { 60_000 } else { 50 });
            assert_eq!(wait_within(limit, child).unwrap().is_some(), ends);
        }
    }
}
