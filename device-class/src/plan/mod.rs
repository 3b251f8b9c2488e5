//! The plan: what a container gets, step by step, and why. Making it is pure;
//! carrying it out is the hook's business and takes no decision.

mod authority;
mod draft;
mod error;
mod granted;
mod make;
mod oci;
mod prepare;
mod steps;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, Mount};
use serde::Serialize;

use crate::prepare::Preparation;

pub use authority::{Authority, Recorded};
pub use error::PlanError;
pub use granted::Granted;
pub use make::{Asked, plan};

/// The directory in the container that holds what the image does not have a
/// place for: a read-only tmpfs, so that nothing of it stays in the image's
/// writable layer.
pub const INJECTED: &str = "/usr/lib/boathook";

/// The directory under [`INJECTED`] for libraries and their links.
pub const LIBRARIES: &str = "lib";

/// The directory under [`INJECTED`] for libraries of 32-bit programs.
pub const LIBRARIES_32BIT: &str = "lib32";

/// The directory under [`INJECTED`] for programs and other files.
pub const FILES: &str = "files";

/// What a container gets.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InjectionPlan {
    /// What was asked, by whom, and what it came to.
    pub grants: Vec<Grant>,
    /// The steps, in the order in which they are carried out.
    pub steps: Vec<InjectionStep>,
    /// What somebody should look into: a line each.
    pub warnings: Vec<String>,
    /// What was left out, and why: a line each.
    pub notes: Vec<String>,
}

/// What one request came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// The class.
    pub class: String,
    /// The ids of the devices.
    pub devices: Vec<String>,
    /// How many devices of the class the host has.
    pub of: usize,
    /// Where the request stood, and what it said.
    pub asked_by: String,
    /// On whose word the devices are given.
    pub authorized_by: String,
}

/// One change to the container.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InjectionStep {
    /// What is done.
    #[serde(flatten)]
    pub action: Action,
    /// For whose sake: device ids, or the class.
    pub why: String,
}

/// The kinds of change.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// A program of the host makes a device what it is to be.
    Prepare(Preparation),
    /// The container's cgroup, and those above it, allow a device.
    Allow {
        /// The rule.
        rule: LinuxDeviceCgroup,
        /// Whether the container's spec says the same, so that its own cgroup
        /// allows it already. Those above may not.
        in_spec: bool,
    },
    /// A device node appears in the container.
    Node {
        /// Where the host has it.
        source: PathBuf,
        /// Where the container gets it, and what it has to stand for. With a
        /// mode it is made in the container, else it is the host's own node.
        device: LinuxDevice,
    },
    /// A directory of the container shows no more than this: a read-only tmpfs
    /// covers it. Where the container has no such directory nothing is done.
    Mask {
        /// The directory.
        path: PathBuf,
        /// Files that lie in it, and what they say.
        files: BTreeMap<PathBuf, String>,
        /// What of the host is to be seen in it: source, destination and options.
        shown: Vec<Mount>,
    },
    /// A directory of the host appears in the container.
    Directory {
        /// Source, destination and options.
        mount: Mount,
    },
    /// A file of the host appears in the container: bound over a file that is
    /// there, else as a link to where it lies under [`INJECTED`].
    File {
        /// Source, destination and options.
        mount: Mount,
    },
    /// A library appears under [`INJECTED`].
    Library {
        /// Source, destination and options.
        mount: Mount,
        /// Further names for it beside the file.
        links: BTreeSet<String>,
    },
    /// The container's dynamic loader finds these libraries.
    Loader {
        /// The directories, the first to be searched first.
        directories: Vec<PathBuf>,
        /// Names and where each leads.
        libraries: Vec<(String, PathBuf)>,
        /// The directory of the libraries for 32-bit programs, if there are any.
        #[serde(skip_serializing_if = "Option::is_none")]
        directory_32bit: Option<PathBuf>,
        /// Their names and where each leads.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        libraries_32bit: Vec<(String, PathBuf)>,
    },
}
