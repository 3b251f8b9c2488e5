//! A container in the host.

use anyhow::Result;

use super::{Runtime, SystemdHost};
use crate::bundle::Bundle;
use crate::captured::Captured;
use crate::probe::{Questions, Report};

/// A running container. Removed when dropped.
#[derive(Debug)]
pub struct Container<'a> {
    host: &'a SystemdHost,
    runtime: Runtime,
    bundle: &'a Bundle,
}

impl<'a> Container<'a> {
    /// Runs the bundle's container in the background.
    pub fn run(host: &'a SystemdHost, runtime: Runtime, bundle: &'a Bundle) -> Result<Self> {
        let container = Self {
            host,
            runtime,
            bundle,
        };
        container.start()?;
        Ok(container)
    }

    /// What the probe in it sees.
    pub fn probe(&self, questions: &Questions) -> Result<Report> {
        let command = self.runtime.command();
        let (program, options) = command.split_first().unwrap_or((&"", &[]));
        let mut exec = self.host.command(program)?;
        exec.args(options)
            .args(["exec", self.bundle.id()])
            .args(questions.command()?);
        Report::parse(&Captured::run(&mut exec)?.success()?.stdout)
    }

    /// Changes its resources, as an engine does: `update ARGS ID`.
    pub fn update(&self, args: &[&str]) -> Result<()> {
        self.silently(&[&["update"], args, &[self.bundle.id()]].concat())
    }

    /// Kills and removes it, and runs it again from the same bundle.
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
        let command = self.runtime.command();
        self.host.run_silently(&[&command, args].concat())
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.delete() {
            // There is nobody to return it to. The host ends soon, and all
            // its containers with it.
            eprintln!("{error:#}");
        }
    }
}
