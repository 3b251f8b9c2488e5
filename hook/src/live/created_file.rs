//! Files that are created in the root of a container that runs: device nodes, links, mounts and
//! the directories for them.
//!
//! The container is hostile and may replace any file. So a file is removed only if it is still the
//! one that was created, which is checked with the same handle; what the container put in its
//! place stays.

mod prediction;

use std::path::{Path, PathBuf};

use device_class::device::DeviceNumber;
use injection_plan::plan::{Action, INJECTED, InjectionStep, StepUser};
use nix::errno::Errno;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use serde::{Deserialize, Serialize};

pub(super) use prediction::predict_files;

use super::LiveError;
use super::record_form;
use crate::apply::{InjectedDir, is_same_library};
use crate::container::{self, ContainerRoot, FileKind, Handle, Name, Parent, link_text};
use crate::mount;

/// The file system, the inode number and the device number of a file.
type Identity = [u64; 3];

/// The largest number of mounts that are unmounted from one path.
const MAX_LAYERS: usize = 32;

/// One file, directory or mount that is created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CreatedFile {
    pub(crate) path: PathBuf,
    #[serde(rename = "how")]
    pub(crate) kind: CreatedKind,
    /// The file that was at the path before.
    before: Option<Identity>,
    /// The devices and the classes that need the file. An empty list means that the file stays,
    /// whatever is detached.
    #[serde(rename = "for", with = "record_form::users")]
    pub(crate) users: Vec<StepUser>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CreatedKind {
    /// A bind mount of this file of the host.
    Mount(Identity),
    /// A tmpfs.
    Tmpfs,
    /// A bind mount of the host's device node with this device number.
    Bound(u64),
    /// A device node with this device number, created in the container.
    Node(u64),
    /// A symbolic link with the first text. The second is the text of the link that it replaced.
    Link(PathBuf, Option<PathBuf>),
    /// An empty directory for one of the others.
    Directory,
}

impl CreatedFile {
    /// Whether both are the same file, whatever their users are.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.kind == other.kind
    }

    /// Returns the device nodes and links that the hook creates for `steps` when it starts a
    /// container.
    pub(crate) fn from_start(steps: &[InjectionStep]) -> Vec<Self> {
        let files = steps.iter().flat_map(|step| match &step.action {
            Action::Node { mount, number, .. } => Self::nodes(&mount.path, *number, step).into(),
            Action::MakeNode { path, number, .. } => Self::nodes(path, *number, step).into(),
            Action::Link { path, target } => {
                vec![Self::for_step(
                    path,
                    CreatedKind::Link(target.clone(), None),
                    step,
                )]
            }
            _ => Vec::new(),
        });
        files.collect()
    }

    /// Returns both forms that a device node of a step may have in a container: a node of its
    /// own, or a bind mount of the host's node. Which of them is there depends on the class, on
    /// the engine and on the container's user namespace.
    pub(crate) fn nodes(path: &Path, number: DeviceNumber, step: &InjectionStep) -> [Self; 2] {
        let number = to_raw(number);
        // A bind mount may be on top of a node. It is undone first, as the last one.
        let kinds = [CreatedKind::Node(number), CreatedKind::Bound(number)];
        kinds.map(|kind| Self::for_step(path, kind, step))
    }

    fn for_step(path: &Path, kind: CreatedKind, step: &InjectionStep) -> Self {
        CreatedFile {
            path: path.to_owned(),
            kind,
            before: None,
            users: step.users.clone(),
        }
    }

    /// Returns the device number in the form of `st_rdev`, if the file is a device node.
    pub(super) fn device_number(&self) -> Option<u64> {
        match self.kind {
            CreatedKind::Bound(number) | CreatedKind::Node(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn is_node_or_link(&self) -> bool {
        self.device_number().is_some() || matches!(self.kind, CreatedKind::Link(..))
    }

    /// Whether a step creates this file.
    pub(crate) fn is_from(&self, step: &InjectionStep) -> bool {
        match (&step.action, &self.kind) {
            (
                Action::Node { mount, number, .. },
                CreatedKind::Bound(known) | CreatedKind::Node(known),
            ) => mount.path == self.path && to_raw(*number) == *known,
            (Action::MakeNode { path, number, .. }, CreatedKind::Node(known)) => {
                *path == self.path && to_raw(*number) == *known
            }
            (Action::Link { path, target }, CreatedKind::Link(text, _)) => {
                *path == self.path && target == text
            }
            (Action::Directory(mount) | Action::File(mount), CreatedKind::Mount(_)) => {
                mount.path == self.path
            }
            (Action::File(mount), CreatedKind::Link(text, _)) => {
                mount.path == self.path && InjectedDir::place_of(&mount.path) == *text
            }
            (Action::Library { mount, names, .. }, CreatedKind::Link(text, _)) => {
                let name = text.file_name().and_then(|name| name.to_str());
                text.parent() == mount.path.parent() && name.is_some_and(|it| names.contains(it))
            }
            (Action::Library { names, .. }, CreatedKind::Mount(_)) => {
                let name = self.path.file_name();
                name.is_some_and(|name| names.iter().any(|it| is_same_library(it, name)))
            }
            (Action::File(_) | Action::Library { .. }, CreatedKind::Tmpfs) => {
                self.path == Path::new(INJECTED)
            }
            (Action::Mask { path, .. }, CreatedKind::Tmpfs) => *path == self.path,
            (
                Action::Node { mount, .. } | Action::Directory(mount) | Action::File(mount),
                CreatedKind::Directory,
            ) => mount.path.starts_with(&self.path),
            (Action::MakeNode { path, .. } | Action::Link { path, .. }, CreatedKind::Directory) => {
                path.starts_with(&self.path)
            }
            _ => false,
        }
    }

    /// Removes the file from a container's root, if it is still the one that was created.
    pub(crate) fn remove(&self, root: &ContainerRoot) -> Result<(), LiveError> {
        let parent = match root.existing_parent(&self.path) {
            // A container that makes one path impossible does not keep its other files by that.
            Err(error) if error.means_no_directory() => None,
            parent => parent?,
        };
        let Some((parent, name)) = parent else {
            return Ok(());
        };
        match &self.kind {
            CreatedKind::Mount(source) => {
                if let Some(top) = find_mount(root, &parent, name)?
                    && top.identity().numbers() == *source
                {
                    mount::unmount(&top, &self.path, root.proc())?;
                }
                self.remove_mount_point(root, &parent, name)
            }
            CreatedKind::Bound(number) => {
                if let Some(top) = find_mount(root, &parent, name)?
                    && is_node(&top, *number)
                {
                    mount::unmount(&top, &self.path, root.proc())?;
                }
                self.remove_mount_point(root, &parent, name)
            }
            CreatedKind::Tmpfs => {
                for _ in 0..MAX_LAYERS {
                    match find_mount(root, &parent, name)? {
                        Some(top) if self.is_created_tmpfs(&top) => {
                            mount::unmount(&top, &self.path, root.proc())?;
                        }
                        _ => break,
                    }
                }
                self.remove_mount_point(root, &parent, name)
            }
            CreatedKind::Node(number) => match parent.open(name)? {
                Some(found)
                    if is_node(&found, *number) && !parent.is_mounted(&found, root.proc())? =>
                {
                    Ok(parent.remove(name, found.kind())?)
                }
                _ => Ok(()),
            },
            CreatedKind::Link(text, old) => match parent.open(name)? {
                Some(found) if link_text(&found).as_ref() == Some(text) => {
                    let done = match old {
                        Some(old) => parent.redirect_link(name, old),
                        None => parent.remove(name, FileKind::Symlink),
                    };
                    Ok(done?)
                }
                _ => Ok(()),
            },
            CreatedKind::Directory => self.remove_mount_point(root, &parent, name),
        }
    }

    fn is_created_tmpfs(&self, top: &Handle) -> bool {
        Some(top.identity().numbers()) != self.before
            && fstatfs(top).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
    }

    /// Removes the empty file or directory that was created as a mount point. A file or directory
    /// with content was put there by the container, and stays.
    fn remove_mount_point(
        &self,
        root: &ContainerRoot,
        parent: &Parent,
        name: Name<'_>,
    ) -> Result<(), LiveError> {
        let Some(found) = parent.open(name)? else {
            return Ok(());
        };
        // The file was there before. The container may have replaced it between the prediction
        // and the mount.
        if self.before == Some(found.identity().numbers()) {
            return Ok(());
        }
        let is_empty = match found.kind() {
            FileKind::Regular => found.stat().st_size == 0,
            kind => kind == FileKind::Directory,
        };
        if !is_empty || parent.is_mounted(&found, root.proc())? {
            return Ok(());
        }
        match parent.remove(name, found.kind()) {
            Err(container::Error::File(error))
                if [Errno::ENOTEMPTY, Errno::EBUSY].contains(&error.errno()) =>
            {
                Ok(())
            }
            removed => Ok(removed?),
        }
    }
}

/// Returns the topmost mount at a path, if anything is mounted there.
fn find_mount(
    root: &ContainerRoot,
    parent: &Parent,
    name: Name<'_>,
) -> container::Result<Option<Handle>> {
    let Some(found) = parent.open(name)? else {
        return Ok(None);
    };
    Ok(parent.is_mounted(&found, root.proc())?.then_some(found))
}

fn is_node(found: &Handle, number: u64) -> bool {
    found.kind().is_device() && found.identity().numbers()[2] == number
}

/// Returns a device number in the form of `st_rdev` (makedev(3)).
pub(super) fn to_raw(number: DeviceNumber) -> u64 {
    nix::sys::stat::makedev(number.major.into(), number.minor.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::container::Resolver;

    #[test]
    fn an_empty_file_stays_only_if_it_was_there_before() {
        for is_the_images in [true, false] {
            let top = tempfile::tempdir().unwrap();
            let file = top.path().join("device");
            fs::write(&file, "").unwrap();
            let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
            let path = PathBuf::from("/device");
            let (parent, name) = root.existing_parent(&path).unwrap().unwrap();
            let it_is = parent.open(name).unwrap().unwrap().identity().numbers();
            // A directory was there, say, which the container removed meanwhile.
            let another = [it_is[0], it_is[1] + 1, it_is[2]];
            let created = CreatedFile {
                path: path.clone(),
                kind: CreatedKind::Bound(7),
                before: Some(if is_the_images { it_is } else { another }),
                users: Vec::new(),
            };
            created.remove(&root).unwrap();
            assert_eq!(file.exists(), is_the_images);
        }
    }
}
