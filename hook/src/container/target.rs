//! Mount points in a container.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::{Directory, Error, FileKind, Handle, Identity, Name, Result, WritableDirectory};

/// The mode of empty files that are created as mount points. Nobody sees it while the mount
/// covers the file.
const PLACEHOLDER: Mode = Mode::S_IRUSR.union(Mode::S_IRGRP).union(Mode::S_IROTH);

/// The mode of directories that are created as mount points.
const DIRECTORY: Mode = Mode::from_bits_truncate(0o755);

/// A handle on a mount point.
#[derive(Debug)]
pub struct Target {
    directory: Directory,
    name: OsString,
    fd: OwnedFd,
    origin: TargetOrigin,
}

/// The file that was at the path of the mount point before.
#[derive(Debug)]
enum TargetOrigin {
    Existing(Identity),
    /// No file existed, and one was created on the mount with this id.
    Nothing {
        mount: u64,
    },
}

impl Target {
    pub fn created(&self) -> bool {
        self.mount().is_some()
    }

    /// Returns the id of the mount that the target is on. Returns `None` if the target
    /// existed, because it may then be the root of a mount other than that of its directory.
    pub(crate) fn mount(&self) -> Option<u64> {
        match self.origin {
            TargetOrigin::Nothing { mount } => Some(mount),
            TargetOrigin::Existing(_) => None,
        }
    }

    /// Returns whether the target is already the file `identity`. Mounting the file would then
    /// change nothing, as when a hook runs twice.
    pub fn is_file(&self, identity: Identity) -> bool {
        matches!(self.origin, TargetOrigin::Existing(found) if found == identity)
    }

    pub fn is_tmpfs(&self) -> Result<bool> {
        match fstatfs(&self.fd) {
            Ok(found) => Ok(found.filesystem_type() == TMPFS_MAGIC),
            Err(errno) => {
                let action = "look at the file system of";
                Err(Error::system(action, self.path(), errno))
            }
        }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Opens the file to which the target's name leads now. After a mount this is the mounted
    /// file, unless the name was replaced.
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
    /// Returns a mount point in this directory for a source of this kind: the existing file,
    /// or a new directory or empty file.
    ///
    /// A directory can cover a directory. Any other source can cover a regular file or a file
    /// of its own kind; a device node can cover a device node.
    ///
    /// # Errors
    /// [`Error::LinkAtLeaf`] if the name is a symbolic link, which is never followed;
    /// [`Error::WrongKind`] if the existing file must not be covered; [`Error::ReadOnly`] if a
    /// file must be created and the file system is read-only.
    pub fn mount_point(&self, name: Name<'_>, source: FileKind) -> Result<Target> {
        // The function first tries to create the file, which takes a single call if the file
        // does not exist. The kernel reports an existing name even where writing is not
        // permitted.
        let origin = TargetOrigin::Nothing {
            mount: self.mount(),
        };
        if source == FileKind::Directory {
            if self.make_dir(name, DIRECTORY)? {
                let made = self.directory().open_existing(name)?;
                self.check_mount(&made, &self.directory().path_of(name))?;
                let target = self.directory().target(name, made, source)?;
                return Ok(Target { origin, ..target });
            }
        } else if let Some(fd) = self.make_file(name, PLACEHOLDER)? {
            return Ok(Target {
                directory: self.directory().clone(),
                name: name.as_os_str().to_owned(),
                fd,
                origin,
            });
        }
        let found = self.directory().open_existing(name)?;
        self.directory().target(name, found, source)
    }
}

impl Directory {
    /// Returns the existing file as a mount point, or `None` if it does not exist.
    pub fn existing_mount_point(&self, name: Name<'_>, source: FileKind) -> Result<Option<Target>> {
        let found = self.open(name)?;
        found
            .map(|found| self.target(name, found, source))
            .transpose()
    }

    fn target(&self, name: Name<'_>, found: Handle, source: FileKind) -> Result<Target> {
        let path = || self.path_of(name);
        match found.kind() {
            FileKind::Symlink => Err(Error::LinkAtLeaf { path: path() }),
            kind if may_cover(source, kind) => Ok(Target {
                directory: self.clone(),
                name: name.as_os_str().to_owned(),
                origin: TargetOrigin::Existing(found.identity()),
                fd: found.into_fd(),
            }),
            found => Err(Error::WrongKind {
                path: path(),
                found,
                wanted: source,
            }),
        }
    }
}

/// Returns whether a mount of a `source` may cover `found`.
fn may_cover(source: FileKind, found: FileKind) -> bool {
    match (source, found) {
        (FileKind::Directory, _) | (_, FileKind::Directory) => source == found,
        (_, FileKind::Regular) => true,
        (source, found) => source == found || (source.is_device() && found.is_device()),
    }
}
