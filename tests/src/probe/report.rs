//! The report of a probe with its answers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::mountinfo::{self, Mounted};

/// The answers of a probe.
#[derive(Debug, Deserialize, Serialize)]
pub struct Report {
    /// The uid of the probe's process.
    pub uid: u32,
    pub env: BTreeMap<String, String>,
    /// The mounts of the container, in the order in which they were made.
    pub mounts: Vec<Mounted>,
    /// The files at the requested paths.
    pub paths: BTreeMap<PathBuf, PathReport>,
    /// The result for each device that it was requested to create.
    pub new_nodes: BTreeMap<PathBuf, NodeAttempt>,
}

/// The file at a path. Symbolic links are followed for all fields except `link_target`.
#[derive(Debug, Deserialize, Serialize)]
pub struct PathReport {
    pub kind: Kind,
    /// The target of the path, if it is a symbolic link itself.
    pub link_target: Option<PathBuf>,
    pub uid: u32,
    pub gid: u32,
    /// The inode number. It is the same as on the host if the file is the host's own file.
    pub inode: u64,
    pub(super) device: Option<(u64, u64)>,
    pub read: Access,
    pub write: Access,
    /// Whether the file can be opened for reading and writing at once.
    pub read_write: Access,
    /// The sorted names of the entries, if the file is a directory.
    pub entries: Option<Vec<String>>,
    /// The fingerprint of the content ([`crate::fingerprint::of_bytes`]), if it is a regular file.
    pub fingerprint: Option<String>,
    /// The content, if it is a short regular file of UTF-8 text.
    pub text: Option<String>,
}

/// The result of an attempt to create a device node.
#[derive(Debug, Deserialize, Serialize)]
pub struct NodeAttempt {
    /// Whether the node could be created.
    pub made: Access,
    /// Whether the created node could be opened for reading. `None` if the node was not created.
    pub read: Option<Access>,
}

/// The file at a path.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// There is no file, or a link without a target.
    Missing,
    File,
    Directory,
    CharacterDevice,
    BlockDevice,
    /// The file is a named pipe or a socket.
    Other,
}

/// The result of an attempt to open or create a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Access {
    /// The attempt succeeded.
    Granted,
    /// The attempt failed. The text is the name of the error, such as `EPERM`.
    Refused(String),
}

impl Report {
    /// Parses the probe's output.
    pub fn parse(printed: &str) -> Result<Self> {
        serde_json::from_str(printed).with_context(|| format!("not the probe's report: {printed}"))
    }

    /// Returns the file at a requested path.
    pub fn path(&self, path: impl AsRef<Path>) -> Result<&PathReport> {
        let path = path.as_ref();
        self.paths
            .get(path)
            .with_context(|| format!("the probe was not asked about {}", path.display()))
    }

    /// Returns the result for a device that the probe was asked to create.
    pub fn new_node(&self, path: impl AsRef<Path>) -> Result<&NodeAttempt> {
        let path = path.as_ref();
        self.new_nodes
            .get(path)
            .with_context(|| format!("the probe was not asked to make {}", path.display()))
    }

    /// Returns the mount at exactly this path, if there is one.
    pub fn mount_at(&self, path: impl AsRef<Path>) -> Option<&Mounted> {
        mountinfo::find_mount(&self.mounts, path.as_ref())
    }
}

impl PathReport {
    /// Returns the major and the minor number, if the file is a device node.
    pub fn number(&self) -> Option<(u64, u64)> {
        self.device
    }
}

impl Access {
    /// Returns the refusal with the error of this name, such as `EPERM`.
    pub fn refused(errno: &str) -> Self {
        Self::Refused(errno.to_string())
    }
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Granted => "granted",
            Self::Refused(errno) => errno,
        })
    }
}
