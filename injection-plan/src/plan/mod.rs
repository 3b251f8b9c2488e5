//! The injection plan: all steps that give a container its devices, each with its reason.
//! Planning is a pure function of the requests and of the scan of the host. The hook
//! executes the plan, and decides only details that depend on the container's files.

mod authority;
mod builder;
mod capability_need;
mod detached;
mod error;
mod given_by;
mod library_path;
mod masked_paths;
mod mount;
pub mod optional_files;
mod parts;
mod prepare;
mod remarks;
mod spec_devices;
mod steps;
mod text;
mod user;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::device::{Access, DeviceNumber, DeviceRule};
use device_class::discover::{
    FoundClass, ImageLibraries, MadeNode, NetInterface, NetInterfaceSearch, OwnNode,
};
use device_class::name::{ClassName, DeviceId, DeviceRef, excerpt};
use serde::Serialize;

use crate::follower::FOLLOWER;
use crate::request::{Awaited, Item, Request, RequestedPlace, SimilarDevice};

use builder::PlanBuilder;

pub use authority::{Authority, RecordUse, RecordedDevices};
pub use capability_need::{CapabilityNeed, CapabilityState, SpecCapabilities};
pub use detached::DetachedRequest;
pub use error::PlanError;
pub use given_by::GivenBy;
pub use library_path::LIBRARY_PATH;
pub use masked_paths::MaskedSteps;
pub use mount::{BindMount, MountAttributes, SourceKind};
pub use prepare::Preparation;
pub use spec_devices::{SpecDevices, SpecNode, SpecRule};
pub use user::StepUser;

/// The directory in the container for injected files at whose own paths the image has nothing. It is
/// a read-only tmpfs, so that no file stays behind in the container's writable layer.
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
    /// Environment variables for the container. A hook cannot set variables, because it runs after
    /// the container was created. `boathook-runtime` and engines that read CDI specifications can.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The capabilities that programs need to use the devices. The plan does not grant them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<CapabilityNeed>,
    /// Problems that the administrator should look at, one line each.
    pub warnings: Vec<String>,
    /// Parts that were omitted, and the reason, one line each.
    pub notes: Vec<String>,
}

/// The devices of one class that a request was permitted to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub class: ClassName,
    pub devices: Vec<DeviceId>,
    /// The number of devices of the class on the host.
    pub available: usize,
    /// The source of the request and its text, for messages.
    #[serde(rename = "asked_by")]
    pub requested_by: String,
    /// The origin of the devices: the hook, or a user who attached them.
    #[serde(rename = "attached", skip_serializing_if = "GivenBy::is_hook")]
    pub given_by: GivenBy,
    pub authorized_by: String,
    /// The devices that the host does not have, and that the container gets when they come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Awaited>,
    /// By an awaited name, as its request: the device of the host that was probably meant by it.
    #[serde(rename = "did_you_mean", skip_serializing_if = "BTreeMap::is_empty")]
    pub similar: BTreeMap<String, SimilarDevice>,
    /// The names that the container requested and `boathook detach` took away, for messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub detached: Vec<String>,
    /// Whether the devices are followed: `boathook follow` updates their nodes in the container when
    /// the devices disappear and come back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// The names by which followed devices were requested, by device id. Only aliases and paths
    /// are included ([`Selection::names_of_devices`](crate::request::Selection)). A device that
    /// comes back may have another id, and is recognised by this name.
    #[serde(skip)]
    pub names: BTreeMap<DeviceId, Item>,
    /// The places that the request chose for the nodes of each device, by the id of the device
    /// ([`Selection::places`](crate::request::Selection)).
    #[serde(skip)]
    pub places: BTreeMap<DeviceId, Vec<RequestedPlace>>,
}

impl InjectionPlan {
    /// Returns whether the container waits for devices.
    pub fn is_waiting(&self) -> bool {
        self.grants.iter().any(|grant| !grant.waiting.is_empty())
    }
}

impl Grant {
    /// Returns the ids of the devices as text for messages.
    pub fn describe_devices(&self) -> String {
        let ids: Vec<&str> = self.devices.iter().map(DeviceId::as_str).collect();
        ids.join(",")
    }

    /// Returns the devices with their class.
    pub fn device_refs(&self) -> impl Iterator<Item = DeviceRef> {
        let ids = self.devices.iter();
        ids.map(|id| DeviceRef::new(&self.class, id))
    }

    /// Returns a line for each part of the request that was detached.
    pub fn describe_detached(&self) -> impl Iterator<Item = String> {
        let class = &self.class;
        let detached = self.detached.iter();
        detached.map(move |name| {
            let name = excerpt(name);
            format!(
                "`boathook detach` ended the request for {name} of {class}, until the container is \
                 started again"
            )
        })
    }

    /// Returns a line for each device that the container waits for. It names the device and the
    /// program that will attach it.
    pub fn describe_waiting(&self) -> impl Iterator<Item = String> {
        let class = &self.class;
        let awaited = self.waiting.iter();
        awaited.filter_map(move |awaited| match awaited {
            Awaited::All if self.available > 0 => None,
            Awaited::All => Some(format!(
                "waiting for all of {class}: {FOLLOWER} gives devices that come"
            )),
            Awaited::Device { .. } => {
                let request = awaited.to_request();
                let name = excerpt(&request);
                let similar = self.similar.get(&request);
                let similar = similar.map_or_else(String::new, |device| format!("; {device}"));
                Some(format!(
                    "waiting for {name} of {class}, which this host does not have: {FOLLOWER} gives \
                     it when it comes{similar}"
                ))
            }
        })
    }
}

/// One element of a plan: an action, and the devices or the class that need it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InjectionStep {
    #[serde(flatten)]
    pub action: Action,
    /// The ids of the devices, or the name of the class, that need this step, as one text for
    /// messages.
    #[serde(rename = "for")]
    pub user_labels: String,
    /// The devices or the class that need this step.
    #[serde(skip)]
    pub users: Vec<StepUser>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// A program of the host prepares a device for the container.
    Prepare(Preparation),
    /// A device rule is added to the container's cgroup and to the cgroups above it.
    Allow {
        #[serde(flatten)]
        rule: DeviceRule,
        /// Whether the container's spec has this rule. In this case the runtime adds the
        /// rule to the container's own cgroup, but the cgroups above may still deny access.
        in_spec: bool,
        /// The devices and classes that need the rule, by the access that each needs.
        /// `rule` has the access of all of them.
        #[serde(skip)]
        users_by_access: BTreeMap<Access, Vec<StepUser>>,
        /// The host's node of the device. `None` for a node that the host does not have, and
        /// that is created in containers.
        #[serde(skip)]
        host_node: Option<PathBuf>,
    },
    Node {
        /// The bind mount of the host's node.
        #[serde(flatten)]
        mount: BindMount,
        #[serde(flatten)]
        number: DeviceNumber,
        /// If set, a node with this mode and group is created in the container instead of a
        /// bind mount. A container in a user namespace gets the bind mount nevertheless,
        /// because nodes that are created there cannot be opened.
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
    /// The network interfaces of a device are moved into the container's network namespace.
    NetInterfaces {
        /// The interfaces that were in the host's network namespace when the plan was made. It has
        /// none while a container has them.
        interfaces: Vec<NetInterface>,
        /// Finds the interfaces of the device in the container's network namespace.
        #[serde(skip)]
        search: NetInterfaceSearch,
    },
    /// A symbolic link is created in the container, unless its path exists already.
    Link { path: PathBuf, target: PathBuf },
    /// A read-only tmpfs covers a directory of the container.
    Mask {
        path: PathBuf,
        /// Whether the directory is created if the container does not have it. Otherwise
        /// the step does nothing in this case.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        make: bool,
        files: BTreeMap<PathBuf, String>,
        /// Files and directories of the host that are mounted into the tmpfs.
        shown: Vec<BindMount>,
        /// Links of the kernel that are created in the tmpfs, each with its target.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        links: BTreeMap<PathBuf, PathBuf>,
    },
    /// A directory of the host is mounted into the container.
    Directory(BindMount),
    /// A file of the host is mounted over the container's file of this path. If the
    /// container has no file there, it is mounted under [`INJECTED`], with a link to it.
    File(BindMount),
    /// A library of the host is mounted under [`INJECTED`]. Files of the image that have one of
    /// its names are covered by it, in the image's library directory and in `library_path` of
    /// [`Action::Loader`].
    Library {
        #[serde(flatten)]
        mount: BindMount,
        /// The names of links to the library, in the library's own directory.
        links: BTreeSet<String>,
        /// The names by which programs open the library.
        #[serde(skip)]
        names: BTreeSet<String>,
        /// The subset of `names` for which a link is created in the image's library directory.
        #[serde(skip_serializing_if = "BTreeSet::is_empty")]
        image_links: BTreeSet<String>,
    },
    /// The container's dynamic loader is configured to find these libraries.
    Loader {
        /// The directories, in the order in which the loader searches them.
        directories: Vec<PathBuf>,
        /// The names of the libraries, each with its path in the container.
        libraries: Vec<(String, PathBuf)>,
        /// Directories of the image that the loader searches first, if the image's
        /// libraries are newer than the host's.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        image_libraries: Vec<ImageLibraries>,
        /// The directories of the container's `LD_LIBRARY_PATH`, which the loader searches
        /// before its own configuration.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        library_path: Vec<PathBuf>,
        /// The directory of the libraries for 32-bit programs, if the plan has any.
        #[serde(skip_serializing_if = "Option::is_none")]
        directory_32bit: Option<PathBuf>,
        /// The names of the 32-bit libraries, each with its path in the container.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        libraries_32bit: Vec<(String, PathBuf)>,
    },
}

/// The input of a plan for one request of a container: the request, the host's devices and files
/// of its class, and the authority that permits the request.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    pub class: &'a DeviceClass,
    pub request: &'a Request,
    pub found: &'a FoundClass,
    pub authority: &'a Authority,
}

/// Makes the plan for all requests of a container. Nodes that the container's spec has
/// already are left out.
///
/// # Errors
/// Returns an error if a request cannot be met in full, because no container may start with
/// less than it requested.
pub fn plan(inputs: &[PlanInput<'_>], spec: &SpecDevices) -> Result<InjectionPlan, PlanError> {
    let mut builder = PlanBuilder::default();
    for input in inputs {
        builder.add(input)?;
    }
    builder.check_places(spec)?;
    Ok(builder.finish(spec))
}
