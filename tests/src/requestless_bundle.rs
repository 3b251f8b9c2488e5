//! Runs the hook for a container that requests no device, as most containers do.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use crate::{class_files, scratch};

/// The files with which the hook runs without a runtime. All shipped classes are installed, and the
/// container has as many variables as in a namespace with many services.
#[derive(Debug)]
pub struct RequestlessBundle(TempDir);

impl RequestlessBundle {
    pub const VARIABLES: usize = 300;

    pub fn new() -> Result<Self> {
        let this = Self(scratch::directory("alone")?);
        let env: Vec<String> = (0..Self::VARIABLES)
            .map(|number| format!("SERVICE_{number}_PORT_443_TCP_ADDR=10.0.0.1"))
            .collect();
        let config =
            json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"env": env}});
        fs::write(this.file("config.json"), config.to_string())?;
        let state = json!({"ociVersion": "1.0.2", "id": "bench", "status": "creating",
                           "pid": std::process::id(), "bundle": this.0.path()});
        fs::write(this.state(), state.to_string())?;
        let classes = class_files::install(this.0.path())?;
        fs::write(
            this.file("boathook.toml"),
            format!("classes = [{classes:?}]\n"),
        )?;
        Ok(this)
    }

    /// Returns the path of the file with the container's state, which is the hook's standard input.
    pub fn state(&self) -> PathBuf {
        self.file("state")
    }

    /// Returns the command that runs the hook by the given programs and arguments, of which the
    /// last is the hook itself.
    pub fn hook(&self, programs: &[String]) -> Result<Command> {
        let (first, others) = programs.split_first().context("no program")?;
        let mut command = Command::new(first);
        command
            .args(others)
            .arg("--config")
            .arg(self.file("boathook.toml"))
            .arg("prestart");
        Ok(command)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
