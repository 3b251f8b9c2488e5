//! Runs a container in a host with systemd.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Runtime, SystemdHost};
use crate::bundle::Bundle;
use crate::captured::Captured;
use crate::probe::{Questions, Report};

/// A running container. Dropping the value removes it.
#[derive(Debug)]
pub struct Container<'a> {
    host: &'a SystemdHost,
    runtime: Runtime,
    bundle: &'a Bundle,
    wrapper_config: Option<&'a Path>,
}

impl<'a> Container<'a> {
    /// Starts the container of a bundle in the background, by the runtime or, with a configuration,
    /// by `boathook-runtime`.
    pub fn run(
        host: &'a SystemdHost,
        runtime: Runtime,
        bundle: &'a Bundle,
        wrapper_config: Option<&'a Path>,
    ) -> Result<Self> {
        let container = Self {
            host,
            runtime,
            bundle,
            wrapper_config,
        };
        container.start()?;
        Ok(container)
    }

    /// Attaches a device to the container.
    pub fn attach(&self, config: &Path, device: &str) -> Result<()> {
        self.boathook(config, &["attach", self.bundle.id(), device])
    }

    /// Detaches all devices from the container.
    pub fn detach(&self, config: &Path) -> Result<()> {
        self.boathook(config, &["detach", self.bundle.id()])
    }

    fn boathook(&self, config: &Path, arguments: &[&str]) -> Result<()> {
        let program = SystemdHost::program("boathook");
        let state = self.runtime.options()[1].clone();
        let mut command = self.host.command(program)?;
        command.arg("--config").arg(config).args(arguments);
        Captured::run(command.args(["--root", &state]))?
            .success()
            .map(drop)
    }

    /// Returns the report of a probe in the container.
    pub fn probe(&self, questions: &Questions) -> Result<Report> {
        let mut exec = self.host.command("env")?;
        exec.args(self.command())
            .args(["exec", self.bundle.id()])
            .args(questions.command()?);
        Report::parse(&Captured::run(&mut exec)?.success()?.stdout)
    }

    /// Changes the resources of the container. `resources` has the form of config.json.
    pub fn update(&self, resources: &serde_json::Value) -> Result<()> {
        let file = self.bundle.directory().join("resources.json");
        std::fs::write(&file, resources.to_string())
            .with_context(|| format!("cannot write {}", file.display()))?;
        let file = file.display().to_string();
        self.silently(&["update", "--resources", &file, self.bundle.id()])
    }

    /// Kills and removes the container, and starts it again from the same bundle.
    pub fn restart(&self) -> Result<()> {
        self.delete()?;
        self.start()
    }

    fn start(&self) -> Result<()> {
        let directory = self.bundle.directory().display().to_string();
        self.silently(&["run", "--detach", "--bundle", &directory, self.bundle.id()])
    }

    fn delete(&self) -> Result<()> {
        self.silently(&["delete", "--force", self.bundle.id()])
    }

    fn silently(&self, args: &[&str]) -> Result<()> {
        let mut command = vec!["env".to_string()];
        command.extend(self.command());
        command.extend(args.iter().map(ToString::to_string));
        self.host.run_silently(&command)
    }

    /// Returns the command that the engine calls, as arguments of env(1).
    fn command(&self) -> Vec<String> {
        let program = match self.wrapper_config {
            None => vec![self.runtime.program.path().to_string()],
            Some(config) => vec![
                format!("BOATHOOK_CONFIG={}", config.display()),
                SystemdHost::program("boathook-runtime")
                    .display()
                    .to_string(),
            ],
        };
        [program, self.runtime.options()].concat()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.delete() {
            // The error can only be printed. The host ends soon, with all its containers.
            eprintln!("{error:#}");
        }
    }
}
