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

/// Returns the path of runc (Debian's package runc, or that of an engine), or `None` if the machine
/// has none. It is searched in the usual directories of root, and not in the caller's PATH.
pub fn program() -> Option<PathBuf> {
    let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    directories
        .iter()
        .map(|directory| Path::new(directory).join("runc"))
        .find(|path| path.is_file())
}

/// runc with a state directory of its own and one view of cgroups.
#[derive(Debug)]
pub struct Runc {
    state: TempDir,
    view: CgroupView,
    /// The configuration of `boathook-runtime`, if it runs before runc.
    wrapper: Option<PathBuf>,
}

impl Runc {
    /// Creates a runc without containers.
    pub fn new(view: CgroupView) -> Result<Self> {
        Ok(Self {
            state: scratch::directory("runc")?,
            view,
            wrapper: None,
        })
    }

    /// Lets `boathook-runtime` run before runc, with this configuration.
    #[must_use]
    pub fn behind_wrapper(mut self, config: &Path) -> Self {
        self.wrapper = Some(config.to_path_buf());
        self
    }

    /// Returns the view of cgroups that runc has.
    pub fn view(&self) -> CgroupView {
        self.view
    }

    /// Returns the directory with the state of the containers.
    pub fn state_directory(&self) -> &Path {
        self.state.path()
    }

    /// Runs the command of a bundle to its end, as `runc run` does. The container is removed
    /// afterwards, whether or not the command succeeds.
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

    /// Creates the container of a bundle. The container's command waits until the container is
    /// started.
    pub fn create<'a>(&'a self, bundle: &'a Bundle) -> Result<Container<'a>> {
        Container::create(self, bundle)
    }

    /// Returns the command `runc <subcommand>`, to which the caller adds arguments.
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

    /// Removes a container, whether it runs or not. If there is no such container, nothing happens.
    ///
    /// On a busy machine a killed process may take longer to end than runc waits, and runc then
    /// leaves the cgroup behind. Such a cgroup is removed, too.
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
            // The function is called when a value is dropped, so the error can only be printed.
            eprintln!("{error:#}");
        }
    }

    /// Returns whether runc has a container with this id.
    pub fn knows(&self, id: &str) -> bool {
        fs::exists(self.state.path().join(id)).unwrap_or(false)
    }
}
