//! Opens and creates mount points in a container. No symbolic link is followed.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::{Directory, Error, FileKind, FileName, Handle, Identity, Result, WritableDirectory};

/// The mode of the empty files that are created as mount points. Programs do not see this mode,
/// because the mounted file hides the empty file.
const FILE_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IRGRP).union(Mode::S_IROTH);

const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A handle on a file or a directory of a container that will become a mount point.
#[derive(Debug)]
pub struct MountTarget {
    directory: Directory,
    name: OsString,
    fd: OwnedFd,
    origin: TargetOrigin,
}

/// Whether a mount point already existed, or the hook created it.
#[derive(Debug)]
enum TargetOrigin {
    Existing(Identity),
    /// The hook created the mount point. `mount_id` is the id of the mount that contains it.
    Created {
        mount_id: u64,
    },
}

impl MountTarget {
    /// Reports whether the hook created the mount point. Otherwise it existed in the container
    /// before.
    pub fn is_newly_created(&self) -> bool {
        self.mount_id().is_some()
    }

    /// Returns the id of the mount that contains the target, if the hook created the target.
    /// Returns `None` if the target already existed, because it may then be a mount point itself.
    pub(crate) fn mount_id(&self) -> Option<u64> {
        match self.origin {
            TargetOrigin::Created { mount_id } => Some(mount_id),
            TargetOrigin::Existing(_) => None,
        }
    }

    /// Reports whether the file with the identity `identity` (device and inode number) is already
    /// mounted on the target. The hook may run twice, and then does not mount the file again.
    pub fn has_identity(&self, identity: Identity) -> bool {
        matches!(self.origin, TargetOrigin::Existing(entry) if entry == identity)
    }

    /// Reports whether the target is on a tmpfs. This is the case if an earlier run of the hook has
    /// mounted a mask (a read-only tmpfs that hides files) there.
    pub fn is_tmpfs(&self) -> Result<bool> {
        match fstatfs(&self.fd) {
            Ok(statfs) => Ok(statfs.filesystem_type() == TMPFS_MAGIC),
            Err(errno) => {
                let action = "look at the file system of";
                Err(Error::system(action, self.path(), errno))
            }
        }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Opens the file that has the target's name now. After a mount, this is the root of the mount,
    /// unless a process of the container has renamed another file to this name.
    pub(crate) fn reopen_by_name(&self) -> Result<Handle> {
        self.directory.open_existing(FileName::new(&self.name)?)
    }
}

impl AsFd for MountTarget {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl WritableDirectory {
    /// Returns the entry `name` as a mount point for a source of the kind `source_kind`. If there
    /// is no such entry, creates a directory or an empty file.
    ///
    /// A directory can only be mounted on a directory. Any other file can be mounted on a regular
    /// file or on a file of its own kind. A device node can be mounted on a device node of either
    /// kind.
    ///
    /// # Errors
    ///
    /// [`Error::SymlinkAtMountPoint`] if the entry is a symbolic link, which is never followed;
    /// [`Error::WrongKind`] if a source of this kind cannot be mounted on the existing file;
    /// [`Error::ReadOnly`] if a file must be created and the file system is read-only.
    pub fn open_or_create_mount_point(
        &self,
        name: FileName<'_>,
        source_kind: FileKind,
    ) -> Result<MountTarget> {
        // The hook tries to create the mount point without a check whether the name exists. If it
        // does, the kernel returns EEXIST, even on a read-only file system. So a single system call
        // is enough.
        let origin = TargetOrigin::Created {
            mount_id: self.mount_id(),
        };
        if source_kind == FileKind::Directory {
            if self.create_new_dir(name, DIRECTORY_MODE)? {
                let new_directory = self.directory().open_existing(name)?;
                self.refuse_mount_point(&new_directory, &self.directory().entry_path(name))?;
                let target = self
                    .directory()
                    .check_target(name, new_directory, source_kind)?;
                return Ok(MountTarget { origin, ..target });
            }
        } else if let Some(fd) = self.create_new_file(name, FILE_MODE)? {
            return Ok(MountTarget {
                directory: self.directory().clone(),
                name: name.as_os_str().to_owned(),
                fd,
                origin,
            });
        }
        let entry = self.directory().open_existing(name)?;
        self.directory().check_target(name, entry, source_kind)
    }
}

impl Directory {
    /// Returns the existing entry `name` as a mount point for a source of the kind `source_kind`.
    /// Returns `None` if there is no such entry.
    pub fn open_mount_point(
        &self,
        name: FileName<'_>,
        source_kind: FileKind,
    ) -> Result<Option<MountTarget>> {
        let entry = self.open(name)?;
        entry
            .map(|entry| self.check_target(name, entry, source_kind))
            .transpose()
    }

    fn check_target(
        &self,
        name: FileName<'_>,
        entry: Handle,
        source_kind: FileKind,
    ) -> Result<MountTarget> {
        let path = || self.entry_path(name);
        match entry.kind() {
            FileKind::Symlink => Err(Error::SymlinkAtMountPoint { path: path() }),
            kind if can_mount_over(source_kind, kind) => Ok(MountTarget {
                directory: self.clone(),
                name: name.as_os_str().to_owned(),
                origin: TargetOrigin::Existing(entry.identity()),
                fd: entry.into_fd(),
            }),
            kind => Err(Error::WrongKind {
                path: path(),
                found_kind: kind,
                expected_kind: source_kind,
            }),
        }
    }
}

/// Reports whether a file of the kind `source_kind` may be mounted on a file of the kind
/// `target_kind`. The kernel requires only that both or none of them are directories.
fn can_mount_over(source_kind: FileKind, target_kind: FileKind) -> bool {
    match (source_kind, target_kind) {
        (FileKind::Directory, _) | (_, FileKind::Directory) => source_kind == target_kind,
        (_, FileKind::Regular) => true,
        (source_kind, target_kind) => {
            source_kind == target_kind || (source_kind.is_device() && target_kind.is_device())
        }
    }
}
