//! Reads the hook's plan for a container by `boathook explain --json`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use harness::binaries;
use harness::captured::Captured;
use serde::Deserialize;

/// The parts of a plan that the demo compares.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
enum Step {
    Node {
        path: PathBuf,
        major: u64,
        minor: u64,
    },
    Library {
        path: PathBuf,
    },
    #[serde(other)]
    Other,
}

impl Plan {
    /// Returns the plan for a bundle, which is not applied.
    pub(crate) fn explain(config: &Path, bundle: &Path) -> Result<Self> {
        let mut command = Command::new(binaries::program("boathook")?);
        command
            .arg("--config")
            .arg(config)
            .args(["explain", "--json", "--bundle"])
            .arg(bundle);
        let explained = Captured::run(&mut command)?.success()?;
        serde_json::from_str(&explained.stdout).context("boathook explain printed no plan")
    }

    /// Returns the planned device number of the node at `path`.
    pub(crate) fn node(&self, path: &Path) -> Option<(u64, u64)> {
        let mut nodes = self.nodes();
        nodes.find_map(|(planned, number)| (planned == path).then_some(number))
    }

    /// Returns the paths and device numbers of all planned nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Path, (u64, u64))> {
        self.steps.iter().filter_map(|step| match step {
            Step::Node { path, major, minor } => Some((&**path, (*major, *minor))),
            _ => None,
        })
    }

    /// Returns the planned path in the container of the library file with this name.
    pub(crate) fn library(&self, file_name: &str) -> Option<&Path> {
        self.steps.iter().find_map(|step| match step {
            Step::Library { path } if path.ends_with(file_name) => Some(&**path),
            _ => None,
        })
    }
}
