//! A container of runc, from `runc create` to `runc delete`.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Runc;
use crate::bundle::Bundle;
use crate::captured::{Captured, read_back};
use crate::patience::PATIENCE;
use crate::probe::{Access, PathReport, Questions, Report};

/// A container that runc has created. Dropping the value deletes it.
#[derive(Debug)]
pub struct Container<'a> {
    runc: &'a Runc,
    bundle: &'a Bundle,
    stdout: File,
}

/// The fields of `runc state` that are read.
#[derive(Deserialize)]
struct State {
    status: String,
    pid: i32,
}

impl<'a> Container<'a> {
    pub(super) fn create(runc: &'a Runc, bundle: &'a Bundle) -> Result<Self> {
        let stdout = tempfile::tempfile()?;
        let mut stderr = tempfile::tempfile()?;
        // The value exists before the container is created, so that dropping it also removes an
        // incomplete container.
        let container = Self {
            runc,
            bundle,
            stdout,
        };
        let status = runc
            .command("create")?
            .arg("--bundle")
            .arg(bundle.directory())
            .arg(bundle.id())
            .stdin(Stdio::null())
            .stdout(container.stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .status()
            .context("cannot run runc")?;
        if !status.success() {
            bail!(
                "runc create failed ({status}): {}",
                read_back(&mut stderr)?.trim_end()
            );
        }
        Ok(container)
    }

    pub fn start(&self) -> Result<()> {
        let mut command = self.runc.command("start")?;
        Captured::run(command.arg(self.bundle.id()))?
            .success()
            .map(|_| ())
    }

    /// Runs another command in the container.
    pub fn exec<T: AsRef<str>>(&self, args: &[T]) -> Result<Captured> {
        let mut command = self.runc.command("exec")?;
        command
            .arg(self.bundle.id())
            .args(args.iter().map(AsRef::as_ref));
        Captured::run(&mut command)
    }

    /// Runs another command in the container, which must succeed, and returns its output.
    pub fn output<T: AsRef<str>>(&self, args: &[T]) -> Result<String> {
        Ok(self.exec(args)?.success()?.stdout)
    }

    /// Returns the report of a probe in the container.
    pub fn probe(&self, questions: &Questions) -> Result<Report> {
        Report::parse(&self.output(&questions.command()?)?)
    }

    /// Returns what a probe in the container finds at a path.
    pub fn look(&self, path: impl Into<PathBuf>) -> Result<PathReport> {
        let path = path.into();
        let mut report = self.probe(&Questions::new().path(&path))?;
        report.paths.remove(&path).context("no answer of the probe")
    }

    /// Returns whether a device can be opened by a node that a probe in the container creates
    /// itself.
    pub fn open_own(&self, (major, minor): (u64, u64)) -> Result<Option<Access>> {
        let report = self.probe(&Questions::new().new_node("/dev/own", major, minor))?;
        self.output(&["rm", "-f", "/dev/own"])?;
        Ok(report.new_node("/dev/own")?.read.clone())
    }

    /// Returns the process id, on the host, of the container's first process.
    pub fn pid(&self) -> Result<i32> {
        Ok(self.state()?.pid)
    }

    /// Waits until the command has ended and returns its output.
    pub fn wait(mut self) -> Result<String> {
        let start = Instant::now();
        while self.state()?.status != "stopped" {
            if start.elapsed() > PATIENCE {
                bail!(
                    "the container {} is still running after {PATIENCE:?}",
                    self.bundle.id()
                );
            }
            sleep(Duration::from_millis(10));
        }
        read_back(&mut self.stdout)
    }

    fn state(&self) -> Result<State> {
        let printed =
            Captured::run(self.runc.command("state")?.arg(self.bundle.id()))?.success()?;
        serde_json::from_str(&printed.stdout)
            .context("runc state printed something else than a state")
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        self.runc.delete(self.bundle.id());
    }
}
