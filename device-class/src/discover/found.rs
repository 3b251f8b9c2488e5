//! What there is on a host of what a class expects.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::class::{self, Access};
use crate::host::DeviceNumber;
use crate::name::CapabilityName;

/// What there is where a class expects something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence<T> {
    /// It is there.
    Found(T),
    /// There is nothing, and the class does without.
    Optional,
    /// There is nothing, or something else: the reason, for people.
    Unfit(String),
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundNode {
    /// Where the host has it.
    pub host: PathBuf,
    /// Where the container gets it.
    pub container: PathBuf,
    /// Only for a container with this capability.
    pub capability: Option<CapabilityName>,
    /// What the device rule allows.
    pub access: Access,
    /// The permission bits and the group of a node of the container's own;
    /// nothing for the host's node.
    pub own: Option<OwnNode>,
    /// What the node stands for.
    pub number: Presence<DeviceNumber>,
}

/// Whose a node of the container's own is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnNode {
    /// Permission bits.
    pub mode: u32,
    /// The group, as the container counts it.
    pub gid: u32,
}

impl OwnNode {
    /// A node for which a class sets only one of the two belongs to the root
    /// group, and its group may read and write.
    pub(super) fn of(spec: &class::Node) -> Option<Self> {
        let set = spec.mode.is_some() || spec.gid.is_some();
        set.then(|| OwnNode {
            mode: spec.mode.map_or(0o660, class::NodeMode::bits),
            gid: spec.gid.unwrap_or(0),
        })
    }
}

/// A library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The name under which it was looked for.
    pub soname: String,
    /// All names under which the container finds it, its file's own apart.
    pub links: BTreeSet<String>,
    /// The file, without links in its path.
    pub file: Presence<PathBuf>,
}

/// A single file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Where the class expects it.
    pub path: PathBuf,
    /// Where the container gets it.
    pub container: PathBuf,
    /// Whether it is to be run.
    pub binary: bool,
    /// The file, without links in its path.
    pub file: Presence<PathBuf>,
}

/// A directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDirectory {
    /// Where the class expects it.
    pub path: PathBuf,
    /// Where the container gets it.
    pub container: PathBuf,
    /// The libraries in it that the container's loader is to find.
    pub libraries: Vec<String>,
    /// The directory, without links in its path.
    pub directory: Presence<PathBuf>,
}

/// What a host has for the `[[edits]]` that a container gets.
#[derive(Debug, Clone, Default)]
pub struct FoundEdits {
    /// Control nodes.
    pub nodes: Vec<FoundNode>,
    /// Libraries.
    pub libraries: Vec<FoundLibrary>,
    /// Files and programs.
    pub files: Vec<FoundFile>,
    /// Directories.
    pub directories: Vec<FoundDirectory>,
}
