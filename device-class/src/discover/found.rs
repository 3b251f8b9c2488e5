//! The nodes, libraries, files and directories that a class file describes, with the result of
//! looking each of them up on a host.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::group::{GroupError, resolve_group};
use crate::class::{self, FileKind};
use crate::device::{Access, DeviceNumber};
use crate::host::{HostView, Programs};
use crate::name::CapabilityName;
use crate::template::{Attributes, Template};

/// The result of looking up a node, library, file or directory that a class file describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence<T> {
    Found(T),
    /// The host has nothing usable at the path, and the class file marks it as optional. Containers
    /// are started without it.
    Optional,
    /// The host has nothing at the path, or a file of another type. A container that needs the path
    /// is refused. The text is the reason, for messages.
    Unusable(String),
}

impl<T> Presence<T> {
    /// Returns the reason why a container that needs this path is refused. Returns `None` if the
    /// path can be used or is optional.
    pub fn unusable_reason(&self) -> Option<&str> {
        match self {
            Presence::Unusable(reason) => Some(reason),
            Presence::Found(_) | Presence::Optional => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundNode {
    pub host: PathBuf,
    pub container: PathBuf,
    /// Symbolic links of the host that lead to the node. The container gets the same links.
    pub links: Vec<PathBuf>,
    /// The capability that a container must request to get the node. `None` means that every
    /// container with the device gets the node.
    pub capability: Option<CapabilityName>,
    pub access: Access,
    /// How the container gets the node.
    pub form: NodeForm,
    pub number: Presence<DeviceNumber>,
    /// The consequence of the node's absence. `None` means that the host has the node, that the
    /// node is required, or that the class does not set `needed_for`.
    pub lack: Option<NodeLack>,
}

/// The consequence of an optional node's absence from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLack {
    /// A message that says what fails without the node, and what an administrator can do.
    pub text: String,
    /// Whether the capability of the node is one that a variable of `switches` selects. Clusters
    /// set such a variable for every container, also on hosts without the hardware.
    pub is_switchable: bool,
}

impl FoundNode {
    /// Returns whether a container with these capabilities gets the node.
    pub fn is_for(&self, capabilities: &BTreeSet<CapabilityName>) -> bool {
        let capability = self.capability.as_ref();
        capability.is_none_or(|capability| capabilities.contains(capability))
    }
}

/// How a container gets a device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeForm {
    /// The node of the host is bind-mounted into the container.
    BindMount,
    /// A node with the device number of the host's node is created in the container, with another
    /// mode or group.
    NodeCopy(NodePermissions),
    /// A node is created in the container, because the host has none although the driver is loaded.
    CreatedNode(CreatedNode),
}

/// A node that does not exist on the host, although its driver is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CreatedNode {
    /// The name of the driver in /proc/devices.
    pub driver: String,
    /// Permission bits and group of the node in the container.
    #[serde(flatten)]
    pub permissions: NodePermissions,
    /// The advice for an administrator who creates the node on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Permission bits and group of a node that is created in the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NodePermissions {
    pub mode: u32,
    /// The group id in the container's user namespace.
    pub gid: u32,
}

impl NodePermissions {
    /// Returns the mode and group that the class file sets for a node. If it sets only one of them,
    /// the other one is 0660 or root's group. Returns `None` if the class file sets neither.
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

    /// Returns the mode and group of a node that is created because it is missing on the host. A
    /// value that `make` does not set is taken from `spec`.
    pub(super) fn from_make(
        spec: &class::Node,
        make: &class::NodeCreation,
        host: &dyn HostView,
    ) -> Result<Self, GroupError> {
        let group = spec.created_node_group(make);
        Self::new(make.mode.or(spec.mode), group.as_ref(), host)
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
    /// The soname by which the class names the library.
    pub soname: String,
    pub programs: Programs,
    /// The names of the symbolic links by which the container finds the library. The name of
    /// the file itself is not among them.
    pub links: BTreeSet<String>,
    /// The names of the library for which a link is also created in the image's own library
    /// directory.
    pub image_links: BTreeSet<String>,
    /// The path of the library on the host, with symbolic links resolved.
    pub file: Presence<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// The path in the class, which may contain symbolic links.
    pub path: PathBuf,
    pub container: PathBuf,
    /// Whether the file is a program that the container runs.
    pub is_program: bool,
    pub file: Presence<FileSource>,
}

/// A file or a socket of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    /// The path on the host, with symbolic links resolved.
    pub path: PathBuf,
    pub kind: FileKind,
    /// Whether a container may write to the mount of a socket.
    pub writable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDirectory {
    /// The path in the class, which may contain symbolic links.
    pub path: PathBuf,
    pub container: PathBuf,
    pub writable: bool,
    /// The file names of the libraries in the directory that the container's loader must find.
    pub libraries: Vec<String>,
    /// The path of the directory on the host, with symbolic links resolved.
    pub directory: Presence<PathBuf>,
}

/// A directory whose contents are hidden from the container by a read-only tmpfs. The container
/// sees only the copies, the texts, and the entries of its own devices ([`UnmaskedEntry`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMask {
    /// The path of the directory, which is the same on the host and in the container.
    pub path: PathBuf,
    /// Copies of the host's files in the directory.
    pub copies: Vec<FoundCopy>,
    /// Files in the directory whose content depends on the devices of the container.
    pub texts: Vec<FoundText>,
}

/// A file in a masked directory that is written for a container and has one bit for each of its
/// devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundText {
    /// The path of the file in the container.
    pub path: PathBuf,
    /// The content of the file, with the word `BITS` in the place of the bit mask.
    pub text: String,
    /// The number of the bit of one device, from 0 to 63.
    pub bit: Template,
}

impl FoundText {
    /// Returns the bit mask in which the bit of one device is set. The result is 0 if the number of
    /// the device's bit is not from 0 to 63.
    pub fn bits(&self, device_attributes: &Attributes) -> u64 {
        let number = self.bit.fill(device_attributes).ok();
        let number: Option<u32> = number.and_then(|number| number.parse().ok());
        number
            .and_then(|number| 1_u64.checked_shl(number))
            .unwrap_or(0)
    }

    /// Returns the content of the file for a container whose devices have the bit mask `bits`. The
    /// mask is written in hexadecimal.
    pub fn fill_bits(&self, bits: u64) -> String {
        self.text.replace("BITS", &format!("{bits:x}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCopy {
    /// The path of the file, which is the same on the host and in the container.
    pub path: PathBuf,
    /// The content of the file in the container. It can differ from the host's in single lines.
    pub text: Presence<String>,
}

/// A file or directory in a masked directory that a container with the device nevertheless sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmaskedEntry {
    /// The path of the entry, which is the same on the host and in the container.
    pub path: PathBuf,
    /// The path of the entry on the host, with symbolic links resolved.
    pub source: Presence<PathBuf>,
    /// The target of the entry, if it is a symbolic link of the kernel. The container gets the same
    /// link.
    pub link: Option<PathBuf>,
}

/// A directory of the image with libraries that are used instead of the host's
/// if they are newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageLibraries {
    pub directory: PathBuf,
    /// The library whose file name ends with the version.
    pub library: String,
    /// The major version on the host. The image's library is used only if its major version is
    /// greater.
    pub newer_than: u64,
}

/// The nodes, libraries, files and directories of the selected `[[edits]]` of a class, as they were
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
    /// Returns the edits that a container may get without a device: no nodes, directories or
    /// sockets, by which the container could reach hardware or services of the host.
    pub fn without_device_access(&self) -> Self {
        let is_socket = |file: &FoundFile| match &file.file {
            Presence::Found(source) => source.kind == FileKind::Socket,
            Presence::Optional | Presence::Unusable(_) => false,
        };
        let files = self.files.iter().filter(|file| !is_socket(file));
        FoundEdits {
            nodes: Vec::new(),
            directories: Vec::new(),
            files: files.cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns the reasons why a container that needs these edits is refused, one for each required
    /// node, library, file or directory that cannot be used.
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
            .chain(copies.map(|copy| copy.text.unusable_reason()))
            .flatten()
    }
}
