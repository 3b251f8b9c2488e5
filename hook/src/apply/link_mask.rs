//! Reads and replaces the masks that a running container has below `/sys/class` and `/sys/bus`.
//! Such a mask contains links to devices, so a new mask can be made from a list of links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::ApplyError;
use super::mask::{MAX_NAMES, Mask};
use crate::container::{
    self, ContainerNamespace, ContainerRoot, Directory, FileKind, FileName, read_link_target,
};
use crate::mount::{Mounter, SyscallSupport};

/// The maximum depth of the directories in a mask that are listed.
const MAX_DEPTH: usize = 8;

/// The contents of a mask in a running container. The container may have mounted a tmpfs of its
/// own, so the contents prove nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MaskContents {
    /// The symbolic links in the mask, with their paths and targets.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// The paths of the other files in the mask. They are created files and mounts.
    pub other_paths: BTreeSet<PathBuf>,
}

impl MaskContents {
    /// Adds the contents of `directory`, whose path is `path`. Its subdirectories are listed up to
    /// the depth `max_depth`. Fails if the mask contains more than [`MAX_NAMES`] names, of which
    /// `name_count` were counted before.
    fn add_directory(
        &mut self,
        directory: &Directory,
        path: &Path,
        max_depth: usize,
        name_count: &mut usize,
    ) -> Result<(), container::Error> {
        let names = directory.list_entry_names(MAX_NAMES.saturating_sub(*name_count))?;
        *name_count += names.len();
        for name in names {
            let entry_path = path.join(&name);
            let Some(entry) = directory.open(FileName::new(&name)?)? else {
                continue;
            };
            if let Some(target) = read_link_target(&entry) {
                self.links.insert(entry_path, target);
                continue;
            }
            if entry.kind() == FileKind::Directory && max_depth > 0 {
                let subdirectory = Directory::new(entry.into_fd(), &entry_path);
                // A directory of another file system is a mount, and is not listed.
                if subdirectory.is_tmpfs()? {
                    self.add_directory(&subdirectory, &entry_path, max_depth - 1, name_count)?;
                    continue;
                }
            }
            self.other_paths.insert(entry_path);
        }
        Ok(())
    }
}

/// Returns the contents of the mask over the directory `path` in a running container. Returns
/// `None` if the container does not have the directory, or if the directory is not on a tmpfs.
pub fn read_mask(
    path: &Path,
    namespace: &ContainerNamespace,
) -> Result<Option<MaskContents>, container::Error> {
    let Some(directory) = namespace.open_directory(path)? else {
        return Ok(None);
    };
    if !directory.is_tmpfs()? {
        return Ok(None);
    }
    let mut contents = MaskContents::default();
    contents.add_directory(&directory, path, MAX_DEPTH, &mut 0)?;
    Ok(Some(contents))
}

/// Mounts a mask over the directory `path` in a running container. The mask contains exactly
/// `links`. If the container has a mask with other links, unmounts that mask first. This process
/// must be in the container's mount namespace.
pub fn replace_link_mask(
    path: &Path,
    links: &BTreeMap<PathBuf, PathBuf>,
    root: &ContainerRoot,
    syscall_support: SyscallSupport,
    mount_label: Option<&str>,
) -> Result<(), ApplyError> {
    let files = BTreeMap::new();
    let mask = Mask::from_links(path, links, &files);
    mask.remove_outdated_mask(root)?;
    mask.attach(root, &mut Mounter::new(root, syscall_support), mount_label)
}

/// Reports whether a mask with exactly `links` is mounted over the directory `path`. This process
/// must be in the container's mount namespace.
pub fn has_link_mask(
    path: &Path,
    links: &BTreeMap<PathBuf, PathBuf>,
    root: &ContainerRoot,
) -> Result<bool, ApplyError> {
    Mask::from_links(path, links, &BTreeMap::new()).is_mounted(root)
}
