//! Runs containers with runc.

mod container;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

pub use container::Container;

use crate::bundle::Bundle;
use crate::captured::Captured;
use crate::cgroup_view::CgroupView;
use crate::scratch;
use crate::{binaries, cgroup_parent};

/// The runtime (Debian's package runc, or an engine's own), if there is one.
///
/// Looked for where root has its programs, whatever the caller's search path.
pub fn program() -> Option<PathBuf> {
    let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    directories
        .iter()
        .map(|directory| Path::new(directory).join("runc"))
        .find(|path| path.is_file())
}

/// runc with a state directory of its own, on one view of cgroups.
#[derive(Debug)]
pub struct Runc {
    state: TempDir,
    view: CgroupView,
    /// The configuration of the wrapper, if it runs before runc.
    wrapper: Option<PathBuf>,
}

impl Runc {
    /// A runc without containers.
    pub fn new(view: CgroupView) -> Result<Self> {
        Ok(Self {
            state: scratch::directory("runc")?,
            view,
            wrapper: None,
        })
    }

    /// The same behind `boathook-runtime`, with this configuration.
    #[must_use]
    pub fn behind_wrapper(mut self, config: &Path) -> Self {
        self.wrapper = Some(config.to_path_buf());
        self
    }

    /// The view of cgroups that it has.
    pub fn view(&self) -> CgroupView {
        self.view
    }

    /// The directory with the state of its containers.
    pub fn state_directory(&self) -> &Path {
        self.state.path()
    }

    /// Runs the bundle's command to its end, as `runc run` does. The container
    /// is removed when this returns, whether or not it succeeds.
    pub fn run(&self, bundle: &Bundle) -> Result<Captured> {
        let mut command = self.command("run")?;
        let ran = Captured::run(
            command
                .arg("--bundle")
                .arg(bundle.directory())
                .arg(bundle.id()),
        );
        self.delete(bundle.id());
        ran
    }

    /// Creates the bundle's container; its command waits to be started.
    pub fn create<'a>(&'a self, bundle: &'a Bundle) -> Result<Container<'a>> {
        Container::create(self, bundle)
    }

    /// `runc <subcommand>`, to be completed.
    pub fn command(&self, subcommand: &str) -> Result<Command> {
        let program = match self.wrapper {
            None => program().context("no runc on this machine (package runc)")?,
            Some(_) => binaries::program("boathook-runtime")?,
        };
        let mut command = self.view.command(&program)?;
        if let Some(config) = &self.wrapper {
            command.env("BOATHOOK_CONFIG", config);
        }
        command.arg("--root").arg(self.state.path()).arg(subcommand);
        Ok(command)
    }

    /// Removes a container, running or not. Without effect if there is none.
    ///
    /// Under load a killed process takes longer to end than runc waits before it
    /// leaves the cgroup behind: such a cgroup is removed here.
    pub fn delete(&self, id: &str) {
        let deleted = if self.knows(id) {
            self.command("delete").and_then(|mut command| {
                Captured::run(command.args(["--force", id])).and_then(Captured::success)
            })
        } else {
            return cgroup_parent::remove_named(id);
        };
        cgroup_parent::remove_named(id);
        if let (Err(error), true) = (deleted, self.knows(id)) {
            // Called while dropping: there is nobody to return it to.
            eprintln!("{error:#}");
        }
    }

    /// Whether runc has a container with this id.
    pub fn knows(&self, id: &str) -> bool {
        fs::exists(self.state.path().join(id)).unwrap_or(false)
    }
}
