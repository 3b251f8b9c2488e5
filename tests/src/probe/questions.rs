//! The questions that a test asks a probe.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The paths to examine and the nodes to create. Identity, environment and mounts are always
/// reported.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Questions {
    /// The paths whose metadata the probe reads, and which it tries to open.
    pub paths: Vec<PathBuf>,
    /// The character devices that the probe tries to create and to open. It removes them again.
    pub new_nodes: Vec<NewNode>,
}

/// A character device that the probe tries to create.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewNode {
    pub path: PathBuf,
    pub major: u64,
    pub minor: u64,
}

impl Questions {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Adds the question whether a character device can be created at `path`.
    #[must_use]
    pub fn new_node(mut self, path: impl Into<PathBuf>, major: u64, minor: u64) -> Self {
        self.new_nodes.push(NewNode {
            path: path.into(),
            major,
            minor,
        });
        self
    }

    /// Returns the command that asks the questions in a container.
    pub fn command(&self) -> Result<Vec<String>> {
        Ok(vec![super::PATH.to_string(), serde_json::to_string(self)?])
    }
}
