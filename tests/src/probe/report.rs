//! The answers of the probe.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::mountinfo::{self, Mounted};

/// Everything that the probe saw.
#[derive(Debug, Deserialize, Serialize)]
pub struct Report {
    /// The user that it ran as.
    pub uid: u32,
    pub env: BTreeMap<String, String>,
    /// The mounts, in order.
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
    /// The inode: the same as on the host if it is the host's own file.
    pub inode: u64,
    pub(super) device: Option<(u64, u64)>,
    pub read: Access,
    pub write: Access,
    /// Whether it opens for both at once.
    pub read_write: Access,
    /// The names in it, sorted, if it is a directory.
    pub entries: Option<Vec<String>>,
    /// [`crate::fingerprint::of_bytes`] of the contents, if it is a file.
    pub fingerprint: Option<String>,
    /// The contents, if it is a short file of UTF-8.
    pub text: Option<String>,
}

/// The result of an attempt to create a device node.
#[derive(Debug, Deserialize, Serialize)]
pub struct NodeAttempt {
    /// Whether it could be made.
    pub made: Access,
    /// Whether it could then be opened for reading. `None` if it was not made.
    pub read: Option<Access>,
}

/// The file at a path.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing, or a link to nothing.
    Missing,
    File,
    Directory,
    CharacterDevice,
    BlockDevice,
    /// A fifo or a socket.
    Other,
}

/// The result of an attempt to open or create a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Access {
    /// It was.
    Granted,
    /// It was not: the name of the error, such as `EPERM`.
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

    /// The result for a device that it was requested to create.
    pub fn new_node(&self, path: impl AsRef<Path>) -> Result<&NodeAttempt> {
        let path = path.as_ref();
        self.new_nodes
            .get(path)
            .with_context(|| format!("the probe was not asked to make {}", path.display()))
    }

    /// The mount made at exactly this path, if any.
    pub fn mount_at(&self, path: impl AsRef<Path>) -> Option<&Mounted> {
        mountinfo::find_mount(&self.mounts, path.as_ref())
    }
}

impl PathReport {
    /// The major and the minor number, if it is a device.
    pub fn number(&self) -> Option<(u64, u64)> {
        self.device
    }
}

impl Access {
    /// The refusal with the error of this name.
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
