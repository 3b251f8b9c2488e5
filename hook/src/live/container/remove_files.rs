//! Removes the recorded files from the root of a container.
//!
//! The container is hostile and may replace any file. So a file is removed only if it is still the
//! one that was created. The same handle is used for the check and for the removal. A file that the
//! container put in its place stays.

use nix::errno::Errno;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::container::{self, ContainerRoot, FileKind, Handle, Name, Parent, read_link_target};
use crate::live::LiveError;
use crate::live::record::{CreatedFile, CreatedFileKind};
use crate::mount;

/// The largest number of mounts that are unmounted from one path.
const MAX_STACKED_MOUNTS: usize = 32;

impl CreatedFile {
    /// Removes the file from a container's root, if it is still the one that was created.
    pub(crate) fn remove(&self, root: &ContainerRoot) -> Result<(), LiveError> {
        let parent = match root.existing_parent(&self.path) {
            // If the container replaced a directory of the path, the file is gone. This must not
            // prevent the removal of its other files.
            Err(error) if error.means_no_directory() => None,
            parent => parent?,
        };
        let Some((parent, name)) = parent else {
            return Ok(());
        };
        match &self.kind {
            CreatedFileKind::Mount(source) => {
                if let Some(top) = find_top_mount(root, &parent, name)?
                    && top.identity().numbers() == *source
                {
                    mount::unmount(&top, &self.path, root.proc())?;
                }
                self.remove_mount_point(root, &parent, name)
            }
            CreatedFileKind::BoundNode(number) => {
                if let Some(top) = find_top_mount(root, &parent, name)?
                    && is_device_node(&top, *number)
                {
                    mount::unmount(&top, &self.path, root.proc())?;
                }
                self.remove_mount_point(root, &parent, name)
            }
            CreatedFileKind::Tmpfs => {
                for _ in 0..MAX_STACKED_MOUNTS {
                    match find_top_mount(root, &parent, name)? {
                        Some(top) if self.is_created_tmpfs(&top) => {
                            mount::unmount(&top, &self.path, root.proc())?;
                        }
                        _ => break,
                    }
                }
                self.remove_mount_point(root, &parent, name)
            }
            CreatedFileKind::Node(number) => match parent.open(name)? {
                Some(found)
                    if is_device_node(&found, *number)
                        && !parent.is_mounted(&found, root.proc())? =>
                {
                    Ok(parent.remove(name, found.kind())?)
                }
                _ => Ok(()),
            },
            CreatedFileKind::Link(text, old) => match parent.open(name)? {
                Some(found) if read_link_target(&found).as_ref() == Some(text) => {
                    let done = match old {
                        Some(old) => parent.redirect_link(name, old),
                        None => parent.remove(name, FileKind::Symlink),
                    };
                    Ok(done?)
                }
                _ => Ok(()),
            },
            CreatedFileKind::Directory => self.remove_mount_point(root, &parent, name),
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
fn find_top_mount(
    root: &ContainerRoot,
    parent: &Parent,
    name: Name<'_>,
) -> container::Result<Option<Handle>> {
    let Some(found) = parent.open(name)? else {
        return Ok(None);
    };
    Ok(parent.is_mounted(&found, root.proc())?.then_some(found))
}

pub(in crate::live) fn is_device_node(found: &Handle, number: u64) -> bool {
    found.kind().is_device() && found.identity().numbers()[2] == number
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

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
                kind: CreatedFileKind::BoundNode(7),
                before: Some(if is_the_images { it_is } else { another }),
                users: Vec::new(),
            };
            created.remove(&root).unwrap();
            assert_eq!(file.exists(), is_the_images);
        }
    }
}
