//! The record of one file that Boathook created in a container. The file is a device node, a link,
//! a mount, or a directory that contains one of these.

use std::path::{Path, PathBuf};

use device_class::device::DeviceNumber;
use injection_plan::plan::{Action, INJECTED_DIR, InjectionStep, StepOwner};
use serde::{Deserialize, Serialize};

use crate::apply::{InjectedDir, is_same_library};
use crate::attachment::record::device_text;

/// The identity of a file: `st_dev`, `st_ino` and `st_rdev` of stat(2), in this order.
pub type FileIdentity = [u64; 3];

/// A file, a directory or a mount that was created in a container, as an attachment record
/// describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreatedFile {
    pub path: PathBuf,
    #[serde(rename = "how")]
    pub kind: CreatedFileKind,
    /// The identity of the file that was at this path before. `None` means that no file was there.
    #[serde(rename = "before")]
    pub previous_identity: Option<FileIdentity>,
    /// The devices and the classes that need the file. If the list is empty, the file is not
    /// removed when devices are detached.
    #[serde(rename = "for", with = "device_text::owners")]
    pub owners: Vec<StepOwner>,
}

/// How a file was created. This determines how it is removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreatedFileKind {
    /// A bind mount of a file of the host. The value is the identity of this file.
    Mount(FileIdentity),
    /// A mounted tmpfs.
    Tmpfs,
    /// A bind mount of a device node of the host. The value is its device number (`st_rdev` of
    /// stat(2)).
    #[serde(rename = "bound")]
    BindMountedNode(u64),
    /// A device node that was created in the container. The value is its device number (`st_rdev`).
    Node(u64),
    /// A symbolic link. The first path is its target. If the link replaced another link, the second
    /// path is the target of that link.
    Link(PathBuf, Option<PathBuf>),
    /// An empty directory that was created to hold another created file.
    Directory,
}

impl CreatedFile {
    /// Reports whether both records describe the same file: they have the same path and kind. The
    /// devices that need the file may differ.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.path == other.path && self.kind == other.kind
    }

    /// Returns the device nodes and symbolic links that the injection steps `steps` create. Other
    /// files are not included.
    pub fn from_steps(steps: &[InjectionStep]) -> Vec<Self> {
        let files = steps.iter().flat_map(|step| match &step.action {
            Action::Node { mount, number, .. } => {
                Self::from_node(&mount.path, *number, step).into()
            }
            Action::MakeNode { path, number, .. } => Self::from_node(path, *number, step).into(),
            Action::Link { path, target } => {
                vec![Self::from_step(
                    path,
                    CreatedFileKind::Link(target.clone(), None),
                    step,
                )]
            }
            _ => Vec::new(),
        });
        files.collect()
    }

    /// Returns the two possible forms of a device node in a container: a node that was created, and
    /// a bind mount of the host's node. The class, the engine and the container's user namespace
    /// determine which of them exists.
    pub fn from_node(path: &Path, number: DeviceNumber, step: &InjectionStep) -> [Self; 2] {
        let number = to_st_rdev(number);
        // The bind mount comes last, because it may be mounted over the created node. Files are
        // removed in reverse order.
        let kinds = [
            CreatedFileKind::Node(number),
            CreatedFileKind::BindMountedNode(number),
        ];
        kinds.map(|kind| Self::from_step(path, kind, step))
    }

    fn from_step(path: &Path, kind: CreatedFileKind, step: &InjectionStep) -> Self {
        CreatedFile {
            path: path.to_owned(),
            kind,
            previous_identity: None,
            owners: step.owners.clone(),
        }
    }

    /// Returns the device number in the format of `st_rdev`. Returns `None` if the file is not a
    /// device node.
    pub fn device_number(&self) -> Option<u64> {
        match self.kind {
            CreatedFileKind::BindMountedNode(number) | CreatedFileKind::Node(number) => {
                Some(number)
            }
            _ => None,
        }
    }

    pub fn is_node_or_link(&self) -> bool {
        self.device_number().is_some() || matches!(self.kind, CreatedFileKind::Link(..))
    }

    /// Reports whether the injection step `step` creates this file. The path must match, and for
    /// nodes and links also the device number or the target. A directory matches if the step's file
    /// is below it. The files of a library are compared by their names.
    pub fn is_created_by(&self, step: &InjectionStep) -> bool {
        match (&step.action, &self.kind) {
            (
                Action::Node { mount, number, .. },
                CreatedFileKind::BindMountedNode(recorded_number)
                | CreatedFileKind::Node(recorded_number),
            ) => mount.path == self.path && to_st_rdev(*number) == *recorded_number,
            (Action::MakeNode { path, number, .. }, CreatedFileKind::Node(recorded_number)) => {
                *path == self.path && to_st_rdev(*number) == *recorded_number
            }
            (Action::Link { path, target }, CreatedFileKind::Link(link_target, _)) => {
                *path == self.path && target == link_target
            }
            (Action::Directory(mount) | Action::File(mount), CreatedFileKind::Mount(_)) => {
                mount.path == self.path
            }
            (Action::File(mount), CreatedFileKind::Link(link_target, _)) => {
                mount.path == self.path
                    && InjectedDir::to_injected_path(&mount.path) == *link_target
            }
            (Action::Library { mount, names, .. }, CreatedFileKind::Link(link_target, _)) => {
                let link_name = link_target.file_name().and_then(|name| name.to_str());
                link_target.parent() == mount.path.parent()
                    && link_name.is_some_and(|name| names.contains(name))
            }
            (Action::Library { names, .. }, CreatedFileKind::Mount(_)) => {
                let file_name = self.path.file_name();
                file_name.is_some_and(|file_name| {
                    names.iter().any(|name| is_same_library(name, file_name))
                })
            }
            (Action::File(_) | Action::Library { .. }, CreatedFileKind::Tmpfs) => {
                self.path == Path::new(INJECTED_DIR)
            }
            (Action::Mask { path, .. }, CreatedFileKind::Tmpfs) => *path == self.path,
            (
                Action::Node { mount, .. } | Action::Directory(mount) | Action::File(mount),
                CreatedFileKind::Directory,
            ) => mount.path.starts_with(&self.path),
            (
                Action::MakeNode { path, .. } | Action::Link { path, .. },
                CreatedFileKind::Directory,
            ) => path.starts_with(&self.path),
            _ => false,
        }
    }
}

/// Converts a device number to the format of `st_rdev` (makedev(3)).
pub fn to_st_rdev(number: DeviceNumber) -> u64 {
    nix::sys::stat::makedev(number.major.into(), number.minor.into())
}
