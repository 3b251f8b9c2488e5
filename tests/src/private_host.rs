//! Runs an engine as if it had the machine to itself.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::binaries;
use crate::engine_root::Generation;

/// New namespaces of mounts, processes and networks. In them /etc, /opt, /run, /tmp,
/// /usr/local/bin, /var/lib and /dev/shm are private, or all files. Every process in them is killed
/// when the value is dropped, and also when the test ends.
#[derive(Debug)]
pub struct PrivateHost {
    keeper: Child,
    first: u32,
}

impl PrivateHost {
    /// Creates new namespaces with this machine's files.
    pub fn new() -> Result<Self> {
        Self::with_generation(Generation::OfThisMachine)
    }

    /// Creates new namespaces with the root file system that has this generation of engines.
    pub fn with_generation(generation: Generation) -> Result<Self> {
        Self::with_root(generation.root()?.as_deref(), &[])
    }

    /// Creates new namespaces with this root file system, or with this machine's files if `root` is
    /// `None`. Nothing is written to the root file system, and `directories` of the machine are
    /// visible in it.
    pub fn with_root(root: Option<&Path>, directories: &[&Path]) -> Result<Self> {
        let mut keeper = Command::new(binaries::program("private-host")?)
            .args(root)
            .args(directories)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = keeper.stdout.take().context("no pipe to read from")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let first = line.trim().parse().context("no namespaces were made");
        if first.is_err() {
            keeper.wait()?;
        }
        Ok(Self {
            keeper,
            first: first?,
        })
    }

    /// Returns a command that runs `program` in the namespaces.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "--pid", "--net", "--target"])
            .arg(self.first.to_string())
            .arg("--")
            .arg(program.as_ref());
        command
    }

    /// Returns the id of the first process of the private host, as processes outside see it.
    pub fn pid(&self) -> u32 {
        self.first
    }

    /// Returns the path by which processes outside see the root directory of the private host.
    pub fn root(&self) -> PathBuf {
        format!("/proc/{}/root", self.first).into()
    }

    /// Returns the path by which processes outside see the file `path` of the private host.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }
}

impl Drop for PrivateHost {
    fn drop(&mut self) {
        // The process ends at the end of its input. An error can no longer be reported.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
