//! The plan: what a container gets, step by step, and why. Planning is pure.
//! The hook executes the plan, and decides only what depends on the container.

mod authority;
mod builder;
mod error;
mod given_by;
mod mount;
mod parts;
mod prepare;
mod spec_devices;
mod steps;
mod text;
mod user;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::device::{Access, DeviceNumber, DeviceRule};
use device_class::discover::{FoundClass, ImageLibraries, MadeNode, OwnNode};
use serde::Serialize;

use crate::request::Request;

use builder::PlanBuilder;

pub use authority::{Authority, RecordUse, Recorded};
pub use error::PlanError;
pub use given_by::GivenBy;
pub use mount::{BindMount, MountAttributes, SourceKind};
pub use prepare::Preparation;
pub use spec_devices::{SpecDevices, SpecNode, SpecRule};
pub use user::device_key;

/// The directory in the container for files that the image does not have: a
/// read-only tmpfs, so that nothing stays in the writable layer.
pub const INJECTED: &str = "/usr/lib/boathook";

/// The directory under [`INJECTED`] for libraries and their links.
pub const LIBRARIES: &str = "lib";

/// The directory under [`INJECTED`] for libraries of 32-bit programs.
pub const LIBRARIES_32BIT: &str = "lib32";

/// The directory under [`INJECTED`] for programs and other files.
pub const FILES: &str = "files";

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InjectionPlan {
    pub grants: Vec<Grant>,
    /// The steps, in the order of their execution.
    pub steps: Vec<InjectionStep>,
    /// Variables of the devices, for those who can still set them: a wrapper in
    /// front of the runtime, but no hook.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Messages for the administrator: one line each.
    pub warnings: Vec<String>,
    /// What was omitted, and why: one line each.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub class: String,
    pub devices: Vec<String>,
    /// How many devices of the class the host has.
    pub available: usize,
    /// Where the request was found, and its text, for people.
    pub asked_by: String,
    /// The hook, unless a user attached the devices.
    #[serde(rename = "attached", skip_serializing_if = "GivenBy::is_hook")]
    pub given_by: GivenBy,
    pub authorized_by: String,
    /// Whether the container follows these devices when they come back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// By device id, for followed devices that were requested by an alias or a path: this name,
    /// as a request has it ([`Selection::names_of_devices`](crate::request::Selection)). When
    /// the device comes back, it is the one that has this name, whatever its id is.
    #[serde(skip)]
    pub names: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InjectionStep {
    #[serde(flatten)]
    pub action: Action,
    /// The devices or the class that it is done for.
    #[serde(rename = "for")]
    pub why: String,
    /// The same by their keys ([`device_key`]).
    #[serde(skip)]
    pub users: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// A program of the host prepares a device for the container.
    Prepare(Preparation),
    /// The container's cgroup, and those above it, allow a device.
    Allow {
        #[serde(flatten)]
        rule: DeviceRule,
        /// Whether the container's spec has the same rule, so that its own
        /// cgroup allows it already. Ancestors may not.
        in_spec: bool,
        /// The keys of those that need the rule, by the access that each needs; `rule` has all
        /// of it.
        #[serde(skip)]
        users_by_access: BTreeMap<Access, Vec<String>>,
        /// The host's node of the device. `None` for a node that the host does not have, and
        /// that is created in containers.
        #[serde(skip)]
        host_node: Option<PathBuf>,
    },
    Node {
        /// The host's node, and its path in the container.
        #[serde(flatten)]
        mount: BindMount,
        #[serde(flatten)]
        number: DeviceNumber,
        /// Instead of mounting the host's node, a node with this mode and group
        /// is created in the container. In a user namespace such a node could
        /// not be opened; there the host's node is mounted.
        #[serde(skip_serializing_if = "Option::is_none")]
        own: Option<OwnNode>,
    },
    /// A device node that the host lacks is created in the container.
    MakeNode {
        path: PathBuf,
        #[serde(flatten)]
        number: DeviceNumber,
        #[serde(flatten)]
        made: MadeNode,
    },
    /// A symbolic link appears in the container, unless something has its name.
    Link { path: PathBuf, target: PathBuf },
    /// A directory of the container is masked: a read-only tmpfs covers it. If
    /// the container has no such directory, nothing is done, or it is made.
    Mask {
        path: PathBuf,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        make: bool,
        files: BTreeMap<PathBuf, String>,
        /// Files and directories of the host that are visible in it.
        shown: Vec<BindMount>,
    },
    /// A directory of the host appears in the container.
    Directory(BindMount),
    /// A file of the host appears in the container: mounted over a file that is
    /// there, otherwise under [`INJECTED`] with a link to it.
    File(BindMount),
    /// A library appears under [`INJECTED`].
    Library {
        #[serde(flatten)]
        mount: BindMount,
        /// Further names for it beside the file.
        links: BTreeSet<String>,
    },
    /// The container's dynamic loader finds these libraries.
    Loader {
        /// The directories, the first to be searched first.
        directories: Vec<PathBuf>,
        /// Names and where each leads.
        libraries: Vec<(String, PathBuf)>,
        /// Directories of the image that are searched before these, if they
        /// have newer libraries.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        image_libraries: Vec<ImageLibraries>,
        /// The directory of the libraries for 32-bit programs, if there are any.
        #[serde(skip_serializing_if = "Option::is_none")]
        directory_32bit: Option<PathBuf>,
        /// Their names and where each leads.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        libraries_32bit: Vec<(String, PathBuf)>,
    },
}

/// One request, with what the host has for it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub class: &'a DeviceClass,
    pub request: &'a Request,
    pub found: &'a FoundClass,
    pub authority: &'a Authority,
}

/// Makes the plan for all requests of a container, without what the spec has
/// already.
///
/// # Errors
/// A request cannot be met in full: no container starts with less than
/// it requested.
pub fn plan(asked: &[Asked<'_>], spec: &SpecDevices) -> Result<InjectionPlan, PlanError> {
    let mut builder = PlanBuilder::default();
    for asked in asked {
        builder.add(asked)?;
    }
    Ok(builder.finish(spec))
}
