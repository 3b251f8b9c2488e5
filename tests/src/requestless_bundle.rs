//! A container that requests nothing, as most containers.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use crate::{binaries, scratch};

/// The files for a hook that runs by itself, with every class that the project
/// ships and as many variables as in a namespace with many services.
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
        // The hook checks each directory above the classes: of the source tree there may be
        // any number.
        let classes = this.file("classes");
        fs::create_dir(&classes)?;
        for entry in fs::read_dir(binaries::source_tree().join("device-class/classes"))? {
            let entry = entry?;
            fs::copy(entry.path(), classes.join(entry.file_name()))?;
        }
        fs::write(
            this.file("boathook.toml"),
            format!("classes = [{classes:?}]\n"),
        )?;
        Ok(this)
    }

    /// The container's state, for the hook's standard input.
    pub fn state(&self) -> PathBuf {
        self.file("state")
    }

    /// The hook, which is the last of these programs and arguments.
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
