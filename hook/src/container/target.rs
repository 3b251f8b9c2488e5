//! Opens and creates mount points in a container.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::{Directory, Error, FileKind, Handle, Identity, Name, Result, WritableDirectory};

/// The mode of empty files that are created as mount points. It is not visible while a mount
/// covers the file.
const FILE_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IRGRP).union(Mode::S_IROTH);

/// The mode of directories that are created as mount points.
const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A handle on a file or directory of a container that becomes a mount point.
#[derive(Debug)]
pub struct Target {
    directory: Directory,
    name: OsString,
    fd: OwnedFd,
    origin: TargetOrigin,
}

/// The origin of a mount point, which existed or was created for the mount.
#[derive(Debug)]
enum TargetOrigin {
    Existing(Identity),
    /// The mount point was created, on the mount with the id `mount`.
    Created {
        mount: u64,
    },
}

impl Target {
    pub fn created(&self) -> bool {
        self.mount().is_some()
    }

    /// Returns the id of the mount that contains a new target. Returns `None` if the target
    /// existed, because a mount may cover it already.
    pub(crate) fn mount(&self) -> Option<u64> {
        match self.origin {
            TargetOrigin::Created { mount } => Some(mount),
            TargetOrigin::Existing(_) => None,
        }
    }

    /// Returns whether the target is already the file with the device and inode number
    /// `identity`. Mounting that file would then change nothing; this happens if a hook runs
    /// twice.
    pub fn is_file(&self, identity: Identity) -> bool {
        matches!(self.origin, TargetOrigin::Existing(found) if found == identity)
    }

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

    /// Opens the file that has the target's name now. After a mount this is the root of the
    /// mount, unless a process of the container has renamed another file to the name.
    pub(crate) fn open_top(&self) -> Result<Handle> {
        self.directory.open_existing(Name::new(&self.name)?)
    }
}

impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl WritableDirectory {
    /// Returns the entry `name` as a mount point for a file of the kind `source`. If there is no
    /// such entry, a directory or an empty file is created.
    ///
    /// A directory can only be mounted on a directory. Any other file can be mounted on a regular
    /// file or on a file of its own kind, and a device node on a device node of either kind.
    ///
    /// # Errors
    /// [`Error::LinkAtLeaf`] if the name is a symbolic link, which is never followed;
    /// [`Error::WrongKind`] if a file of the kind `source` cannot be mounted on the existing
    /// file; [`Error::ReadOnly`] if a file must be created and the file system is read-only.
    pub fn mount_point(&self, name: Name<'_>, source: FileKind) -> Result<Target> {
        // Creating a file takes a single system call and fails if the name exists, so it is
        // tried first. The kernel reports EEXIST even for a directory that is read-only.
        let origin = TargetOrigin::Created {
            mount: self.mount(),
        };
        if source == FileKind::Directory {
            if self.make_dir(name, DIRECTORY_MODE)? {
                let new_directory = self.directory().open_existing(name)?;
                self.check_mount(&new_directory, &self.directory().path_of(name))?;
                let target = self.directory().check_target(name, new_directory, source)?;
                return Ok(Target { origin, ..target });
            }
        } else if let Some(fd) = self.make_file(name, FILE_MODE)? {
            return Ok(Target {
                directory: self.directory().clone(),
                name: name.as_os_str().to_owned(),
                fd,
                origin,
            });
        }
        let existing = self.directory().open_existing(name)?;
        self.directory().check_target(name, existing, source)
    }
}

impl Directory {
    /// Returns the entry `name` as a mount point for a file of the kind `source`, or `None` if
    /// there is no such entry.
    pub fn existing_mount_point(&self, name: Name<'_>, source: FileKind) -> Result<Option<Target>> {
        let existing = self.open(name)?;
        existing
            .map(|existing| self.check_target(name, existing, source))
            .transpose()
    }

    fn check_target(&self, name: Name<'_>, existing: Handle, source: FileKind) -> Result<Target> {
        let path = || self.path_of(name);
        match existing.kind() {
            FileKind::Symlink => Err(Error::LinkAtLeaf { path: path() }),
            kind if may_cover(source, kind) => Ok(Target {
                directory: self.clone(),
                name: name.as_os_str().to_owned(),
                origin: TargetOrigin::Existing(existing.identity()),
                fd: existing.into_fd(),
            }),
            found => Err(Error::WrongKind {
                path: path(),
                found,
                wanted: source,
            }),
        }
    }
}

/// Returns whether a file of the kind `source` may be mounted on a file of the kind `target`.
fn may_cover(source: FileKind, target: FileKind) -> bool {
    match (source, target) {
        (FileKind::Directory, _) | (_, FileKind::Directory) => source == target,
        (_, FileKind::Regular) => true,
        (source, target) => source == target || (source.is_device() && target.is_device()),
    }
}
