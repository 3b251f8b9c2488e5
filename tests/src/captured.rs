//! A finished command with all that it wrote.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// What a command left when it ended.
#[derive(Debug)]
pub struct Captured {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// The command, for messages.
    command: String,
}

impl Captured {
    /// Runs `command` to its end with an empty standard input.
    pub fn run(command: &mut Command) -> Result<Self> {
        Self::run_with(command, Stdio::null())
    }

    /// Runs `command` to its end with `input` on its standard input.
    pub fn run_with_input(command: &mut Command, input: &[u8]) -> Result<Self> {
        let mut file = tempfile::tempfile().context("no file for the input")?;
        file.write_all(input)?;
        file.rewind()?;
        Self::run_with(command, file.into())
    }

    /// Output goes to unnamed files and not to pipes: `runc create` leaves a
    /// process that holds both ends open, so that a pipe would never end.
    fn run_with(command: &mut Command, stdin: Stdio) -> Result<Self> {
        let mut stdout = tempfile::tempfile().context("no file for the output")?;
        let mut stderr = tempfile::tempfile().context("no file for the errors")?;
        let status = command
            .stdin(stdin)
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .status()
            .with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self {
            status,
            stdout: read_back(&mut stdout)?,
            stderr: read_back(&mut stderr)?,
            command: format!("{command:?}"),
        })
    }

    /// What a command left that was run elsewhere.
    pub(crate) fn of(command: &str, status: ExitStatus, stdout: String, stderr: String) -> Self {
        Self {
            status,
            stdout,
            stderr,
            command: command.to_string(),
        }
    }

    /// The command's result, or an error with its output.
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

/// Everything in `file`, with invalid UTF-8 replaced.
pub(crate) fn read_back(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
