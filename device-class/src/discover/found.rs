//! What there is on a host of what a class expects.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::class::{self, FileKind};
use crate::device::{Access, DeviceNumber};
use crate::host::Programs;
use crate::name::CapabilityName;
use crate::template::{Attributes, Template};

/// What there is where a class expects something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence<T> {
    Found(T),
    /// There is nothing, and the class does without.
    Optional,
    /// There is nothing, or something else: the reason, for people.
    Unfit(String),
}

impl<T> Presence<T> {
    /// Why what the class expects cannot be used.
    pub fn unfit(&self) -> Option<&str> {
        match self {
            Presence::Unfit(reason) => Some(reason),
            Presence::Found(_) | Presence::Optional => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundNode {
    pub host: PathBuf,
    pub container: PathBuf,
    /// Links that lead to it, on the host and in the container.
    pub links: Vec<PathBuf>,
    /// Only for a container with this capability.
    pub capability: Option<CapabilityName>,
    pub access: Access,
    /// How the container gets it.
    pub form: NodeForm,
    pub number: Presence<DeviceNumber>,
}

impl FoundNode {
    /// Whether a container with these capabilities gets the node.
    pub fn is_for(&self, capabilities: &BTreeSet<CapabilityName>) -> bool {
        let capability = self.capability.as_ref();
        capability.is_none_or(|capability| capabilities.contains(capability))
    }
}

/// How a container gets a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeForm {
    /// The host's node, bound.
    Bound,
    /// A node of its own, for a device whose node the host has.
    Own(OwnNode),
    /// A node that the host lacks.
    Made(MadeNode),
}

/// A node that a driver has not created on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MadeNode {
    /// The driver, which is loaded.
    pub driver: String,
    /// Permission bits and group.
    #[serde(flatten)]
    pub own: OwnNode,
    /// How an administrator creates the node on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Whose a node of the container's own is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OwnNode {
    pub mode: u32,
    /// The group, as the container counts it.
    pub gid: u32,
}

impl OwnNode {
    /// The mode and group of a node, if the class sets at least one of them. By default the
    /// group is root's, and owner and group may read and write.
    pub(super) fn from_node(spec: &class::Node) -> Option<Self> {
        let set = spec.mode.is_some() || spec.gid.is_some();
        set.then(|| Self::from(spec.mode, spec.gid))
    }

    /// The mode and group of a node that the host lacks: those of `make`, else those of `spec`.
    pub(super) fn from_make(spec: &class::Node, make: &class::Make) -> Self {
        Self::from(make.mode.or(spec.mode), make.gid.or(spec.gid))
    }

    fn from(mode: Option<class::NodeMode>, gid: Option<u32>) -> Self {
        OwnNode {
            mode: mode.map_or(0o660, class::NodeMode::bits),
            gid: gid.unwrap_or(0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The name under which it was looked for.
    pub soname: String,
    pub programs: Programs,
    /// All names under which the container finds it, its file's own apart.
    pub links: BTreeSet<String>,
    /// The file, without links in its path.
    pub file: Presence<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Where the class expects it.
    pub path: PathBuf,
    pub container: PathBuf,
    /// Whether it is to be run.
    pub binary: bool,
    pub file: Presence<FileSource>,
}

/// A file or a socket of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    /// Its path without links.
    pub path: PathBuf,
    pub kind: FileKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDirectory {
    /// Where the class expects it.
    pub path: PathBuf,
    pub container: PathBuf,
    pub writable: bool,
    /// The libraries in it that the container's loader is to find.
    pub libraries: Vec<String>,
    /// The directory, without links in its path.
    pub directory: Presence<PathBuf>,
}

/// A directory of which the container sees only what is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMask {
    /// Where it is, on the host and in the container.
    pub path: PathBuf,
    /// The files that are in it.
    pub copies: Vec<FoundCopy>,
    /// Those that are written for the container's devices.
    pub texts: Vec<FoundText>,
}

/// A file with a bit for each device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundText {
    /// Where the container has it.
    pub path: PathBuf,
    /// What it says, with `BITS` for the bits.
    pub text: String,
    pub bit: Template,
}

impl FoundText {
    pub fn bits(&self, device: &Attributes) -> u64 {
        let number = self.bit.fill(device).ok();
        let number: Option<u32> = number.and_then(|number| number.parse().ok());
        number
            .and_then(|number| 1_u64.checked_shl(number))
            .unwrap_or(0)
    }

    pub fn with(&self, bits: u64) -> String {
        self.text.replace("BITS", &format!("{bits:x}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCopy {
    /// Where it is, on the host and in the container.
    pub path: PathBuf,
    /// What the container reads there.
    pub text: Presence<String>,
}

/// What a device shows of a masked directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundShown {
    /// Where it is, on the host and in the container.
    pub path: PathBuf,
    /// The file or directory, without links in its path.
    pub source: Presence<PathBuf>,
}

/// A directory of the image with libraries that are used instead of the host's
/// if they are newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageLibraries {
    pub directory: PathBuf,
    /// The library whose file name ends with the version.
    pub library: String,
    /// The host's major version, which the image's must exceed.
    pub newer_than: u64,
}

/// What a host has for the `[[edits]]` that a container gets.
#[derive(Debug, Clone, Default)]
pub struct FoundEdits {
    pub nodes: Vec<FoundNode>,
    pub libraries: Vec<FoundLibrary>,
    pub files: Vec<FoundFile>,
    pub directories: Vec<FoundDirectory>,
    pub masks: Vec<FoundMask>,
    /// Directories of the image that come before the libraries.
    pub image_libraries: Vec<ImageLibraries>,
}

impl FoundEdits {
    /// The part that may be given without a device: libraries and regular files.
    pub fn harmless(&self) -> Self {
        let is_socket = |file: &FoundFile| match &file.file {
            Presence::Found(source) => source.kind == FileKind::Socket,
            Presence::Optional | Presence::Unfit(_) => false,
        };
        let files = self.files.iter().filter(|file| !is_socket(file));
        FoundEdits {
            nodes: Vec::new(),
            directories: Vec::new(),
            files: files.cloned().collect(),
            ..self.clone()
        }
    }

    /// Why each part that cannot be used cannot.
    pub fn unfit(&self) -> impl Iterator<Item = &str> {
        let copies = self.masks.iter().flat_map(|mask| &mask.copies);
        let nodes = self.nodes.iter().map(|node| node.number.unfit());
        nodes
            .chain(self.libraries.iter().map(|library| library.file.unfit()))
            .chain(self.files.iter().map(|file| file.file.unfit()))
            .chain(self.directories.iter().map(|found| found.directory.unfit()))
            .chain(copies.map(|copy| copy.text.unfit()))
            .flatten()
    }
}
