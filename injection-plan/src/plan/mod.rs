//! The injection plan: all steps that give a container its devices. Each step has its reason.
//! Planning is a pure function of the requests and of the scan of the host. The hook executes the
//! plan, and decides only the details that depend on the container's files.

mod authority;
mod builder;
mod capability_need;
mod class_edits;
mod detached;
mod error;
mod grant_origin;
mod library_path;
mod masked_paths;
mod mount;
mod note;
mod prepare;
mod request_warnings;
mod spec_devices;
mod step_owner;
mod steps;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::device::{Access, DeviceNumber, DeviceRule};
use device_class::discover::{
    CreatedNode, FoundClass, ImageLibraries, NetInterface, NetInterfaceSearch, NodePermissions,
};
use device_class::name::{ClassName, DeviceId, DeviceRef, excerpt};
use serde::Serialize;

use crate::follower::FOLLOWER_NAME;
use crate::request::{AwaitedDevice, DeviceListItem, Request, RequestedNodePath, SimilarDevice};

use builder::PlanBuilder;

pub use authority::{Authority, CheckpointDevices, UnrecordedDevicesRule};
pub use capability_need::{CapabilityNeed, CapabilityState, SpecCapabilities};
pub use detached::DetachedRequest;
pub use error::PlanError;
pub use grant_origin::GrantOrigin;
pub use library_path::LIBRARY_PATH_ENV;
pub use masked_paths::HiddenPaths;
pub use mount::{BindMount, MountAttributes, SourceKind};
pub use note::Note;
pub use prepare::Preparation;
pub use spec_devices::{SpecDevices, SpecNode, SpecRule};
pub use step_owner::StepOwner;

/// The directory in the container for injected files whose usual paths do not exist in the image. A
/// read-only tmpfs is mounted on it, so that no injected file is written to the container's
/// writable layer.
pub const INJECTED_DIR: &str = "/usr/lib/boathook";

/// The name of the directory below [`INJECTED_DIR`] for libraries and their links.
pub const LIBRARIES_DIR_NAME: &str = "lib";

/// The name of the directory below [`INJECTED_DIR`] for libraries of 32-bit programs.
pub const LIBRARIES_32BIT_DIR_NAME: &str = "lib32";

/// The name of the directory below [`INJECTED_DIR`] for programs and other files.
pub const FILES_DIR_NAME: &str = "files";

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InjectionPlan {
    pub grants: Vec<Grant>,
    /// The steps, in the order in which they are executed.
    pub steps: Vec<InjectionStep>,
    /// Environment variables for the container. A hook cannot set variables, because it runs after
    /// the container was created. `boathook-runtime` and engines that read CDI specifications can.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The Linux capabilities that programs need to use the devices. The plan does not grant them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<CapabilityNeed>,
    /// Problems that the administrator should look at, one line each.
    pub warnings: Vec<String>,
    /// Messages about devices and files that were left out. Each message is one line and has the
    /// reason.
    pub notes: Vec<Note>,
}

/// The devices of one class that a container gets for one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub class: ClassName,
    pub devices: Vec<DeviceId>,
    /// The number of devices of this class on the host.
    #[serde(rename = "available")]
    pub available_count: usize,
    /// The source of the request ([`RequestSource`](crate::request::RequestSource)), as text for
    /// messages.
    #[serde(rename = "asked_by")]
    pub requested_by: String,
    /// The origin of the devices: the hook, or a user who ran `boathook attach`.
    #[serde(rename = "attached", skip_serializing_if = "GrantOrigin::is_hook")]
    pub grant_origin: GrantOrigin,
    pub authorized_by: String,
    /// The requested devices that the host does not have. The container gets each of them when it
    /// arrives on the host.
    #[serde(rename = "waiting", skip_serializing_if = "Vec::is_empty")]
    pub awaited_devices: Vec<AwaitedDevice>,
    /// The requests with the suffix `?` whose devices the host has, each with its device. When such
    /// a device is unplugged, the container waits for it again. The list is empty if `is_followed`
    /// is false.
    #[serde(skip)]
    pub fulfilled_requests: Vec<(AwaitedDevice, DeviceId)>,
    /// Whether the container has the host's whole /dev and may access every device. Then it can use
    /// an awaited device as soon as the host has it.
    #[serde(skip)]
    pub has_access_to_all_devices: bool,
    /// The devices of the host whose names are similar to the name of an awaited device. The key is
    /// the request for the awaited device ([`AwaitedDevice::to_request_text`]).
    #[serde(rename = "did_you_mean", skip_serializing_if = "BTreeMap::is_empty")]
    pub similar_devices: BTreeMap<String, SimilarDevice>,
    /// The requests and device ids that `boathook detach` has removed from this container, as text
    /// for messages.
    #[serde(rename = "detached", skip_serializing_if = "Vec::is_empty")]
    pub detached_names: Vec<String>,
    /// Whether the devices are followed: `boathook follow` updates their nodes in the container
    /// when the devices disappear and come back.
    #[serde(rename = "follow", skip_serializing_if = "std::ops::Not::not")]
    pub is_followed: bool,
    /// The aliases and paths by which followed devices were requested, by device id
    /// ([`Selection::find_stable_names`](crate::request::Selection)). If a device is unplugged and
    /// plugged in again with another id, it is recognized by this name.
    #[serde(skip)]
    pub names: BTreeMap<DeviceId, DeviceListItem>,
    /// The paths in the container that the request chose for device nodes, by device id
    /// ([`Selection::find_node_paths`](crate::request::Selection)).
    #[serde(skip)]
    pub node_paths: BTreeMap<DeviceId, Vec<RequestedNodePath>>,
}

impl InjectionPlan {
    /// Returns whether the container requests devices that the host does not have yet.
    pub fn has_awaited_devices(&self) -> bool {
        self.grants
            .iter()
            .any(|grant| !grant.awaited_devices.is_empty())
    }
}

impl Grant {
    /// Returns the ids of the devices as text for messages.
    pub fn describe_devices(&self) -> String {
        let ids: Vec<&str> = self.devices.iter().map(DeviceId::as_str).collect();
        ids.join(",")
    }

    /// Returns the devices of this grant, each with its class.
    pub fn device_refs(&self) -> impl Iterator<Item = DeviceRef> {
        let ids = self.devices.iter();
        ids.map(|id| DeviceRef::new(&self.class, id))
    }

    /// Returns a message for each of `detached_names`, which `boathook detach` has removed.
    pub fn describe_detached_names(&self) -> impl Iterator<Item = String> {
        let class = &self.class;
        let names = self.detached_names.iter();
        names.map(move |name| {
            let name = excerpt(name);
            format!(
                "`boathook detach` ended the request for {name} of {class}, until the container is \
                 started again"
            )
        })
    }

    /// Returns a message for each awaited device. The message names the program that gives the
    /// device to the container when it arrives.
    pub fn describe_awaited_devices(&self) -> impl Iterator<Item = String> {
        let awaited_devices = self.awaited_devices.iter();
        awaited_devices.filter_map(|awaited_device| self.describe_awaited_device(awaited_device))
    }

    /// Returns a message for an awaited device. Returns `None` for the request `all` if the
    /// container has a device of the class, or had one that was detached.
    pub fn describe_awaited_device(&self, awaited_device: &AwaitedDevice) -> Option<String> {
        let class = &self.class;
        let provider = if self.has_access_to_all_devices {
            HOST_DEVICES
        } else {
            FOLLOWER_NAME
        };
        match awaited_device {
            AwaitedDevice::All
                if self.available_count > 0
                    && !(self.devices.is_empty() && self.detached_names.is_empty()) =>
            {
                None
            }
            AwaitedDevice::All => Some(format!(
                "waiting for all of {class}: {provider} gives devices that come"
            )),
            AwaitedDevice::Device { .. } => {
                let request = awaited_device.to_request_text();
                let name = excerpt(&request);
                let similar_device = self.similar_devices.get(&request);
                let hint = similar_device.map_or_else(String::new, |device| format!("; {device}"));
                Some(format!(
                    "waiting for {name} of {class}, which this host does not have: {provider} gives it \
                     when it comes{hint}"
                ))
            }
        }
    }
}

/// The text for the host's /dev in messages about awaited devices. A container that has the whole
/// directory, and may access every device, can use a new device at once.
const HOST_DEVICES: &str = "the host's /dev, which the container has,";

/// One step of a plan: an action, and the devices and classes that need it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InjectionStep {
    #[serde(flatten)]
    pub action: Action,
    /// The ids of the devices and the names of the classes that need this step, as one text for
    /// messages.
    #[serde(rename = "for")]
    pub owner_labels: String,
    /// The devices and the classes that need this step.
    #[serde(skip)]
    pub owners: Vec<StepOwner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Runs a program of the host that prepares a device for the container.
    Prepare(Preparation),
    /// Adds a device rule to the container's cgroup and to its parent cgroups.
    Allow {
        #[serde(flatten)]
        rule: DeviceRule,
        /// Whether config.json already has this rule. If so, the runtime adds the rule to the
        /// container's own cgroup, but the parent cgroups may still deny access.
        #[serde(rename = "in_spec")]
        is_in_spec: bool,
        /// The devices and classes that need the rule, grouped by the access that they need. `rule`
        /// has the union of these accesses.
        #[serde(skip)]
        owners_by_access: BTreeMap<Access, Vec<StepOwner>>,
        /// The path of the device's node on the host. `None` means that the node exists only in
        /// containers.
        #[serde(skip)]
        host_node_path: Option<PathBuf>,
    },
    Node {
        /// The bind mount of the host's node.
        #[serde(flatten)]
        mount: BindMount,
        #[serde(flatten)]
        number: DeviceNumber,
        /// The mode and group of a node that is created in the container. `None` means that the
        /// host's node is bind-mounted instead. In a user namespace the node is always
        /// bind-mounted, because a node that is created there cannot be opened.
        #[serde(rename = "own", skip_serializing_if = "Option::is_none")]
        created_node_permissions: Option<NodePermissions>,
    },
    /// Creates a device node in the container. The host does not have this node.
    MakeNode {
        path: PathBuf,
        #[serde(flatten)]
        number: DeviceNumber,
        #[serde(flatten)]
        created_node: CreatedNode,
    },
    /// Moves the network interfaces of a device into the container's network namespace.
    NetInterfaces {
        /// The interfaces that were in the host's network namespace when the plan was made. The
        /// list is empty while another container has the interfaces.
        interfaces: Vec<NetInterface>,
        /// The criteria for finding the device's interfaces in the container's network namespace.
        #[serde(skip)]
        search: NetInterfaceSearch,
    },
    /// Creates a symbolic link in the container. An existing file at the same path is kept.
    Link { path: PathBuf, target: PathBuf },
    /// Hides a directory of the container: mounts a read-only tmpfs over it, which has only
    /// selected files.
    Mask {
        path: PathBuf,
        /// Whether the directory is created in a container that does not have it. If this is false,
        /// the step does nothing in such a container.
        #[serde(rename = "make", skip_serializing_if = "std::ops::Not::not")]
        should_create: bool,
        files: BTreeMap<PathBuf, String>,
        /// The files and directories of the host that are mounted into the tmpfs.
        #[serde(rename = "shown")]
        visible_mounts: Vec<BindMount>,
        /// The symbolic links that are created in the tmpfs, each with its target. They are copies
        /// of the links in the host's /proc or /sys.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        links: BTreeMap<PathBuf, PathBuf>,
    },
    /// Mounts a directory of the host into the container.
    Directory(BindMount),
    /// Mounts a file of the host over the container's file at the same path. If the container has
    /// no file there, the file is mounted below [`INJECTED_DIR`], and a symbolic link leads to it.
    File(BindMount),
    /// Mounts a library of the host below [`INJECTED_DIR`]. The library is also mounted over files
    /// of the image with the same name, so that programs do not load these instead. Such files are
    /// in the image's library directory or in one of the `library_path_dirs` of [`Action::Loader`].
    Library {
        #[serde(flatten)]
        mount: BindMount,
        /// The names of the symbolic links to the library. They are created in the library's
        /// directory.
        links: BTreeSet<String>,
        /// The names by which programs open the library, such as its soname `libx.so.1`.
        #[serde(skip)]
        names: BTreeSet<String>,
        /// The subset of `names` for which links are also created in the image's library directory.
        #[serde(skip_serializing_if = "BTreeSet::is_empty")]
        image_links: BTreeSet<String>,
    },
    /// Configures the container's dynamic loader to find the injected libraries.
    Loader {
        /// The directories of the libraries, in the order in which the loader searches them.
        directories: Vec<PathBuf>,
        /// The names of the libraries, such as `libx.so.1`, each with its path in the container.
        libraries: Vec<(String, PathBuf)>,
        /// The directories of the image that the loader searches first if the image's libraries are
        /// newer than those of the host.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        image_libraries: Vec<ImageLibraries>,
        /// The directories in the container's `LD_LIBRARY_PATH`. The loader searches them before
        /// the directories in its configuration files.
        #[serde(rename = "library_path", skip_serializing_if = "Vec::is_empty")]
        library_path_dirs: Vec<PathBuf>,
        /// The directory of the libraries for 32-bit programs. `None` means that the plan has no
        /// such libraries.
        #[serde(skip_serializing_if = "Option::is_none")]
        directory_32bit: Option<PathBuf>,
        /// The names of the 32-bit libraries, each with its path in the container.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        libraries_32bit: Vec<(String, PathBuf)>,
    },
}

/// The input of the plan for one request: the request, the result of the scan for its class, and
/// the authority, which decides about the request.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    pub class: &'a DeviceClass,
    pub request: &'a Request,
    pub found_class: &'a FoundClass,
    pub authority: &'a Authority,
}

/// Makes the plan for all requests of a container. Device nodes that config.json already has are
/// not added to the plan.
///
/// # Errors
/// Returns an error if a request cannot be met completely, because a container must not start with
/// less than it requested.
pub fn plan_injection(
    inputs: &[PlanInput<'_>],
    spec: &SpecDevices,
) -> Result<InjectionPlan, PlanError> {
    let mut builder = PlanBuilder::default();
    for input in inputs {
        builder.add_request(input)?;
    }
    builder.check_requested_paths(spec)?;
    Ok(builder.finish(spec))
}
