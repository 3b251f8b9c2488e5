//! The nodes, libraries, files and directories that a class file describes, as they were found on a
//! host.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::group::{GroupError, resolve_group};
use crate::class::{self, FileKind};
use crate::device::{Access, DeviceNumber};
use crate::host::{HostView, ProgramAbi};
use crate::name::CapabilityName;
use crate::template::{Attributes, Template};

/// The result of looking up a node, library, file or directory of a class file on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathLookup<T> {
    Found(T),
    /// There is nothing usable at the path, but the class file marks the path as optional.
    /// Containers start without it.
    OptionalAbsent,
    /// There is nothing at the path, or a file of the wrong type. The hook refuses a container that
    /// needs the path, with this text as the reason.
    Unusable(String),
}

impl<T> PathLookup<T> {
    /// Returns the reason why the hook refuses a container that needs this path. Returns `None` if
    /// the path can be used or is optional.
    pub fn unusable_reason(&self) -> Option<&str> {
        match self {
            PathLookup::Unusable(reason) => Some(reason),
            PathLookup::Found(_) | PathLookup::OptionalAbsent => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundNode {
    pub host_path: PathBuf,
    pub container_path: PathBuf,
    /// The paths of symbolic links on the host that lead to the node, such as those in
    /// /dev/dri/by-path. The container gets the same links.
    pub links: Vec<PathBuf>,
    /// Whether the look-up of the class adds to `links` the symbolic links to this node that udev
    /// has created on the host.
    pub has_udev_links: bool,
    /// Only a container with this capability gets the node. `None` means that every container with
    /// the device gets the node.
    pub capability: Option<CapabilityName>,
    pub access: Access,
    /// Whether the container gets the host's node as a mount, or a new node by mknod(2).
    pub form: NodeInjectionMethod,
    pub number: PathLookup<DeviceNumber>,
    /// The consequence for containers if the host does not have the node. `None` if the host has
    /// the node, if the node is required, or if the class does not set `needed_for`.
    pub absence: Option<NodeAbsence>,
}

/// The consequence for containers if the host does not have an optional node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAbsence {
    /// A message that says what fails without the node, and what an administrator can do.
    pub message: String,
    /// Whether an environment variable in `switches` of the class can select the node's capability.
    /// Clusters set such a variable for every container, even on hosts without the hardware.
    pub can_be_selected_by_switch: bool,
}

impl FoundNode {
    /// Returns whether a container with these capabilities gets the node. A node without a
    /// capability is for every container.
    pub fn matches_capabilities(&self, capabilities: &BTreeSet<CapabilityName>) -> bool {
        let capability = self.capability.as_ref();
        capability.is_none_or(|capability| capabilities.contains(capability))
    }
}

/// The way in which a device node gets into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeInjectionMethod {
    /// The host's node is bind-mounted into the container, with its owner and mode.
    BindMount,
    /// A node is created in the container. It has the device number of the host's node, but another
    /// mode or group.
    NodeCopy(NodePermissions),
    /// A node is created in the container, because the host does not have the node although the
    /// driver is loaded.
    CreatedNode(CreatedNode),
}

/// A device node that the hook creates in the container, because the host does not have the node
/// although the driver is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CreatedNode {
    /// The name of the driver, as in /proc/devices.
    pub driver: String,
    /// The permission bits and the group of the created node.
    #[serde(flatten)]
    pub permissions: NodePermissions,
    /// Advice for an administrator who wants to create the node on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Whether the container starts without the node if the node cannot be created.
    #[serde(skip)]
    pub is_optional: bool,
}

/// The permission bits and the group of a node that is created in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NodePermissions {
    pub mode: u32,
    /// The group id (gid) in the container's user namespace.
    pub gid: u32,
}

impl NodePermissions {
    /// Returns the mode and the group that the class file sets for a node. If it sets only the
    /// group, the mode is 0660; if it sets only the mode, the group is root's. Returns `None` if it
    /// sets neither.
    pub(super) fn from_node(
        spec: &class::Node,
        host: &dyn HostView,
    ) -> Result<Option<Self>, GroupError> {
        let group = spec.configured_group();
        if spec.mode.is_none() && group.is_none() {
            return Ok(None);
        }
        Self::new(spec.mode, group.as_ref(), host).map(Some)
    }

    /// Returns the mode and the group of a node that the hook creates because the host lacks it. A
    /// value that `make` of the class file (`node_creation`) does not set is taken from `spec`.
    pub(super) fn from_node_creation(
        spec: &class::Node,
        node_creation: &class::NodeCreation,
        host: &dyn HostView,
    ) -> Result<Self, GroupError> {
        let group = spec.created_node_group(node_creation);
        Self::new(node_creation.mode.or(spec.mode), group.as_ref(), host)
    }

    fn new(
        mode: Option<class::NodeMode>,
        group: Option<&class::Group>,
        host: &dyn HostView,
    ) -> Result<Self, GroupError> {
        Ok(NodePermissions {
            mode: mode.map_or(0o660, class::NodeMode::bits),
            gid: group.map_or(Ok(0), |group| resolve_group(group, host))?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The soname with which the class file names the library, such as `libnpu.so.1`.
    pub soname: String,
    pub abi: ProgramAbi,
    /// The names of symbolic links to the library, by which programs in the container find it. The
    /// set does not have the name of the library's own file.
    pub link_names: BTreeSet<String>,
    /// The names of symbolic links in the image's own library directory, for programs that open the
    /// library by a path there. The name of the library's own file may be in this set.
    pub image_link_names: BTreeSet<String>,
    /// The path of the library on the host, with symbolic links resolved.
    pub file: PathLookup<PathBuf>,
    /// The reason why the container does not get an optional library although the host has it. For
    /// example, its version may differ from that of the loaded driver.
    pub omission_reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// The path in the class file. It may contain symbolic links.
    pub path: PathBuf,
    pub container_path: PathBuf,
    /// Whether the file is a program that is run in the container.
    pub is_program: bool,
    /// Whether a container starts without the file if the host lacks it, or if it cannot be mounted
    /// at its path in the container.
    pub is_optional: bool,
    pub file: PathLookup<FileSource>,
}

/// A file or a socket of the host that a container gets as a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    /// The path on the host, with symbolic links resolved.
    pub path: PathBuf,
    pub kind: FileKind,
    /// For a socket: whether the container may write to its mount.
    pub is_writable: bool,
    /// Whether the file is a module that a library of the container image expects in or below its
    /// own library directory. For example, libgbm expects its backends there.
    pub is_image_module: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDirectory {
    /// Whether the container starts without the directory if it cannot be mounted.
    pub is_optional: bool,
    /// The path in the class file. It may contain symbolic links.
    pub path: PathBuf,
    pub container_path: PathBuf,
    pub is_writable: bool,
    /// The names of libraries in the directory that the dynamic loader in the container must find.
    pub libraries: Vec<String>,
    /// The path of the directory on the host, with symbolic links resolved.
    pub directory: PathLookup<PathBuf>,
}

/// A mask: a mount of a read-only tmpfs that hides the contents of a directory from the container.
/// In the directory the container sees only copied files, bit mask files, and the entries of its
/// own devices ([`UnmaskedEntry`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMask {
    /// The path of the directory, which is the same on the host and in the container.
    pub path: PathBuf,
    /// The files of the directory that the container gets as copies.
    pub copies: Vec<FoundCopy>,
    /// The files in the directory that contain one bit for each device of the container.
    pub bitmask_files: Vec<BitmaskFile>,
}

/// A file that the hook writes into a masked directory. It contains a bit mask of the container's
/// devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmaskFile {
    /// The path of the file in the container.
    pub path: PathBuf,
    /// The content of the file. `BITS` stands for the bit mask, which is written in hexadecimal.
    pub content: String,
    /// The template for the position of a device's bit, from 0 to 63.
    pub bit_number: Template,
}

impl BitmaskFile {
    /// Returns a bit mask in which only the bit of this device is set. Returns 0 if the position of
    /// the bit is not a number from 0 to 63.
    pub fn device_bit_mask(&self, device_attributes: &Attributes) -> u64 {
        let number = self.bit_number.fill(device_attributes).ok();
        let number: Option<u32> = number.and_then(|number| number.parse().ok());
        number
            .and_then(|number| 1_u64.checked_shl(number))
            .unwrap_or(0)
    }

    /// Returns the content of the file, with `bits` in hexadecimal as its bit mask.
    pub fn fill_bitmask(&self, bits: u64) -> String {
        self.content.replace("BITS", &format!("{bits:x}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCopy {
    /// The path of the file, which is the same on the host and in the container.
    pub path: PathBuf,
    /// The content of the file in the container. It may differ from the host's file, because a
    /// class file can replace the values of some lines.
    pub content: PathLookup<String>,
}

/// A file or directory in a masked directory that stays visible to a container with the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmaskedEntry {
    /// The path of the entry, which is the same on the host and in the container.
    pub path: PathBuf,
    /// The path with symbolic links resolved. The hook mounts this file or directory of the host.
    pub source: PathLookup<PathBuf>,
    /// The target of the entry, if the entry is a symbolic link in /sys/class or /sys/bus. The
    /// container then gets the same link instead of a mount.
    pub link: Option<PathBuf>,
}

/// A directory of the image whose libraries are used instead of the host's if they are newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageLibraries {
    pub directory: PathBuf,
    /// The name of the library whose version is compared. Its file name in the directory ends with
    /// the version.
    pub library: String,
    /// The major version of the host's library, such as 550 for `550.54.15`. The directory is used
    /// only if the image's library has a greater major version.
    #[serde(rename = "newer_than")]
    pub host_major_version: u64,
}

/// The nodes, libraries, files and directories of the `[[edits]]` for one container, as they were
/// found on a host.
#[derive(Debug, Clone, Default)]
pub struct FoundEdits {
    pub nodes: Vec<FoundNode>,
    pub libraries: Vec<FoundLibrary>,
    pub files: Vec<FoundFile>,
    pub directories: Vec<FoundDirectory>,
    pub masks: Vec<FoundMask>,
    /// Directories of the image whose libraries are used instead of the host's if they are newer.
    pub image_libraries: Vec<ImageLibraries>,
}

impl FoundEdits {
    /// Returns a copy for a container that has no device of the class. The copy has no nodes,
    /// directories and sockets, because they would give access to hardware or services of the host.
    pub fn without_device_access(&self) -> Self {
        let is_socket = |file: &FoundFile| match &file.file {
            PathLookup::Found(source) => source.kind == FileKind::Socket,
            PathLookup::OptionalAbsent | PathLookup::Unusable(_) => false,
        };
        let files = self.files.iter().filter(|file| !is_socket(file));
        FoundEdits {
            nodes: Vec::new(),
            directories: Vec::new(),
            files: files.cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns one reason for each required node, library, file or directory that cannot be used.
    /// If there is any reason, the hook refuses a container that needs these `[[edits]]`.
    pub fn unusable_reasons(&self) -> impl Iterator<Item = &str> {
        let copies = self.masks.iter().flat_map(|mask| &mask.copies);
        let nodes = self.nodes.iter().map(|node| node.number.unusable_reason());
        nodes
            .chain(
                self.libraries
                    .iter()
                    .map(|library| library.file.unusable_reason()),
            )
            .chain(self.files.iter().map(|file| file.file.unusable_reason()))
            .chain(
                self.directories
                    .iter()
                    .map(|directory| directory.directory.unusable_reason()),
            )
            .chain(copies.map(|copy| copy.content.unusable_reason()))
            .flatten()
    }
}
