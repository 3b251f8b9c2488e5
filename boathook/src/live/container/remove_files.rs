//! Removes the files that an attachment record lists from the root of a container.
//!
//! A hostile container may replace any file. So a file is removed only if it is still the recorded
//! file. The check and the removal use the same handle. If the container itself has created a file
//! at the path, this file is not removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::discover::is_sysfs_link_directory;
use hook::apply;
use hook::attachment::{CreatedFile, CreatedFileKind};
use hook::container::{self, ContainerRoot, FileKind, FileName, Handle, Parent, read_link_target};
use hook::mount::{self, SyscallSupport};
use nix::errno::Errno;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::live::ContainerChangeError;

/// The maximum number of mounts that are unmounted from one path. A limit is needed because a
/// container can stack any number of mounts.
const MAX_STACKED_MOUNTS: usize = 32;

/// The links of masks below `/sys/class` and `/sys/bus`, by the path of the mask. The inner map has
/// the path and the target of each link.
pub(crate) type MaskLinks = BTreeMap<PathBuf, BTreeMap<PathBuf, PathBuf>>;

/// Removes recorded files from the root of a container. This process must be in the container's
/// mount namespace.
pub(crate) struct FileRemover<'a> {
    pub(crate) root: &'a ContainerRoot,
    /// The masks of the container after the removal. They list the devices that the container
    /// keeps.
    pub(crate) remaining_masks: &'a MaskLinks,
    pub(crate) syscall_support: SyscallSupport,
    /// The SELinux label of a new mask.
    pub(crate) mount_label: Option<&'a str>,
}

impl FileRemover<'_> {
    /// Removes a file from the container's root. Does nothing if the file at its path is not the
    /// file that was created.
    pub(crate) fn remove(&self, file: &CreatedFile) -> Result<(), ContainerChangeError> {
        let root = self.root;
        let parent = match root.open_parent(&file.path) {
            // The container has replaced a directory of the path by a file of another kind, so the
            // recorded file no longer exists. This is not an error, because the other recorded
            // files must still be removed.
            Err(error) if error.is_not_directory_error() => None,
            parent => parent?,
        };
        let Some((parent, name)) = parent else {
            return Ok(());
        };
        match &file.kind {
            CreatedFileKind::Mount(source) => {
                if let Some(top_mount) = find_top_mount(root, &parent, name)?
                    && top_mount.identity().numbers() == *source
                {
                    mount::unmount(&top_mount, &file.path, root.procfs())?;
                }
                remove_mount_point(file, root, &parent, name)
            }
            CreatedFileKind::BindMountedNode(number) => {
                if let Some(top_mount) = find_top_mount(root, &parent, name)?
                    && is_device_node(&top_mount, *number)
                {
                    mount::unmount(&top_mount, &file.path, root.procfs())?;
                }
                remove_mount_point(file, root, &parent, name)
            }
            CreatedFileKind::Tmpfs if is_sysfs_link_directory(&file.path) => {
                self.remove_link_mask(file, &parent, name)
            }
            CreatedFileKind::Tmpfs => {
                for _ in 0..MAX_STACKED_MOUNTS {
                    match find_top_mount(root, &parent, name)? {
                        Some(top_mount) if is_created_tmpfs(file, &top_mount) => {
                            mount::unmount(&top_mount, &file.path, root.procfs())?;
                        }
                        _ => break,
                    }
                }
                remove_mount_point(file, root, &parent, name)
            }
            CreatedFileKind::Node(number) => match parent.open(name)? {
                Some(entry)
                    if is_device_node(&entry, *number)
                        && !parent.is_mounted(&entry, root.procfs())? =>
                {
                    Ok(parent.remove(name, entry.kind())?)
                }
                _ => Ok(()),
            },
            CreatedFileKind::Link(link_target, old_target) => match parent.open(name)? {
                Some(entry) if read_link_target(&entry).as_ref() == Some(link_target) => {
                    let result = match old_target {
                        Some(old_target) => parent.replace_symlink_target(name, old_target),
                        None => parent.remove(name, FileKind::Symlink),
                    };
                    Ok(result?)
                }
                _ => Ok(()),
            },
            CreatedFileKind::Directory => remove_mount_point(file, root, &parent, name),
        }
    }

    /// Unmounts a mask that contains only links to devices. If the container already had a mask
    /// before, `boathook attach` unmounted it. Then mounts a mask for the devices that remain.
    fn remove_link_mask(
        &self,
        file: &CreatedFile,
        parent: &Parent,
        name: FileName<'_>,
    ) -> Result<(), ContainerChangeError> {
        let remaining_links = self.remaining_masks.get(&file.path);
        for _ in 0..MAX_STACKED_MOUNTS {
            let Some(top_mount) = find_top_mount(self.root, parent, name)? else {
                break;
            };
            // The kernel may have given the identity of the previous mask to a later mask. So the
            // links must be the right ones, too.
            let is_previous_mask = Some(top_mount.identity().numbers()) == file.previous_identity
                && match remaining_links {
                    Some(links) => apply::has_link_mask(&file.path, links, self.root)?,
                    None => true,
                };
            if is_previous_mask || !is_tmpfs(&top_mount) {
                break;
            }
            mount::unmount(&top_mount, &file.path, self.root.procfs())?;
        }
        let entry = parent.open(name)?;
        let entry_identity = entry.map(|entry| entry.identity().numbers());
        match (file.previous_identity, remaining_links) {
            // The mask is the directory's first one, and the hook created the directory.
            (None, _) => remove_mount_point(file, self.root, parent, name),
            (Some(_), Some(links)) if entry_identity != file.previous_identity => {
                self.replace_mask(&file.path, links)
            }
            (Some(_), _) => Ok(()),
        }
    }

    /// Mounts a mask that contains exactly `links`, in place of the mask that the container has.
    pub(crate) fn replace_mask(
        &self,
        path: &Path,
        links: &BTreeMap<PathBuf, PathBuf>,
    ) -> Result<(), ContainerChangeError> {
        let (support, label) = (self.syscall_support, self.mount_label);
        Ok(apply::replace_link_mask(
            path, links, self.root, support, label,
        )?)
    }
}

fn is_created_tmpfs(file: &CreatedFile, top_mount: &Handle) -> bool {
    Some(top_mount.identity().numbers()) != file.previous_identity && is_tmpfs(top_mount)
}

fn is_tmpfs(top_mount: &Handle) -> bool {
    fstatfs(top_mount).is_ok_and(|statistics| statistics.filesystem_type() == TMPFS_MAGIC)
}

/// Removes the empty file or directory that was created as a mount point. If it is not empty,
/// the container has written to it, and it is not removed.
fn remove_mount_point(
    file: &CreatedFile,
    root: &ContainerRoot,
    parent: &Parent,
    name: FileName<'_>,
) -> Result<(), ContainerChangeError> {
    let Some(entry) = parent.open(name)? else {
        return Ok(());
    };
    // The file already existed before the mount, so it was not created as a mount point.
    if file.previous_identity == Some(entry.identity().numbers()) {
        return Ok(());
    }
    let is_empty = match entry.kind() {
        FileKind::Regular => entry.stat().st_size == 0,
        kind => kind == FileKind::Directory,
    };
    if !is_empty || parent.is_mounted(&entry, root.procfs())? {
        return Ok(());
    }
    match parent.remove(name, entry.kind()) {
        Err(container::Error::File(error))
            if [Errno::ENOTEMPTY, Errno::EBUSY].contains(&error.errno()) =>
        {
            Ok(())
        }
        removal => Ok(removal?),
    }
}

/// Returns the topmost mount at the path of `name`. Returns `None` if nothing is mounted there.
fn find_top_mount(
    root: &ContainerRoot,
    parent: &Parent,
    name: FileName<'_>,
) -> container::Result<Option<Handle>> {
    let Some(entry) = parent.open(name)? else {
        return Ok(None);
    };
    Ok(parent.is_mounted(&entry, root.procfs())?.then_some(entry))
}

/// Reports whether a file is a device node with this device number. `number` has the format of
/// `st_rdev`.
pub(crate) fn is_device_node(file: &Handle, number: u64) -> bool {
    file.kind().is_device() && file.identity().numbers()[2] == number
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use hook::container::Resolver;

    #[test]
    fn an_empty_file_stays_only_if_it_was_there_before() {
        for is_the_images in [true, false] {
            let top = tempfile::tempdir().unwrap();
            let file = top.path().join("device");
            fs::write(&file, "").unwrap();
            let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
            let path = PathBuf::from("/device");
            let (parent, name) = root.open_parent(&path).unwrap().unwrap();
            let identity = parent.open(name).unwrap().unwrap().identity().numbers();
            // A directory was there, say, which the container removed meanwhile.
            let other_identity = [identity[0], identity[1] + 1, identity[2]];
            let created_file = CreatedFile {
                path: path.clone(),
                kind: CreatedFileKind::BindMountedNode(7),
                previous_identity: Some(if is_the_images {
                    identity
                } else {
                    other_identity
                }),
                owners: Vec::new(),
            };
            let remover = FileRemover {
                root: &root,
                remaining_masks: &MaskLinks::new(),
                syscall_support: SyscallSupport::probe(),
                mount_label: None,
            };
            remover.remove(&created_file).unwrap();
            assert_eq!(file.exists(), is_the_images);
        }
    }
}
