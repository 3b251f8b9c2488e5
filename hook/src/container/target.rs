//! Mount points.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::{Directory, Error, FileKind, Handle, Identity, Name, Result, WritableDirectory};

/// The mode of empty files that are created as mount points. The mount hides
/// it.
const PLACEHOLDER: Mode = Mode::S_IRUSR.union(Mode::S_IRGRP).union(Mode::S_IROTH);

/// The mode of directories that are created as mount points.
const DIRECTORY: Mode = Mode::from_bits_truncate(0o755);

/// A handle on a mount point.
#[derive(Debug)]
pub struct Target {
    directory: Directory,
    name: OsString,
    fd: OwnedFd,
    before: TargetOrigin,
}

/// What was at the path of the mount point before.
#[derive(Debug)]
enum TargetOrigin {
    Existing(Identity),
    /// It was created, on the mount with this id.
    Nothing {
        mount: u64,
    },
}

impl Target {
    pub fn created(&self) -> bool {
        self.mount().is_some()
    }

    /// The id of the target's mount; `None` if the target existed, since it may
    /// be the root of another mount than its directory's.
    pub(crate) fn mount(&self) -> Option<u64> {
        match self.before {
            TargetOrigin::Nothing { mount } => Some(mount),
            TargetOrigin::Existing(_) => None,
        }
    }

    /// Whether the target already shows the file `identity`, so that mounting
    /// it would change nothing (a hook may run twice).
    pub fn shows(&self, identity: Identity) -> bool {
        matches!(self.before, TargetOrigin::Existing(found) if found == identity)
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

    /// Opens the file that the target's name shows now: the mounted one, unless
    /// the name was replaced.
    pub(crate) fn open_top(&self) -> Result<Handle> {
        self.directory.existing(Name::new(&self.name)?)
    }
}

impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl WritableDirectory {
    /// The mount point in this directory for a `source` of that kind: the
    /// existing file, or a directory or empty file created for it.
    ///
    /// A directory goes on a directory, anything else on a regular file, or on
    /// its own kind: a device node may cover a device node.
    ///
    /// # Errors
    /// [`Error::LinkAtLeaf`] if the name is a symbolic link, which is never
    /// followed; [`Error::WrongKind`] if it is something that must not be
    /// covered; [`Error::ReadOnly`] if it cannot be made.
    pub fn mount_point(&self, name: Name<'_>, source: FileKind) -> Result<Target> {
        // Creating it first takes one call if it does not exist, and the kernel
        // checks for an existing name before it checks the permission to write.
        let before = TargetOrigin::Nothing {
            mount: self.mount(),
        };
        if source == FileKind::Directory {
            if self.make_dir(name, DIRECTORY)? {
                let made = self.directory().existing(name)?;
                self.check_mount(&made, &self.directory().path_of(name))?;
                let target = self.directory().target(name, made, source)?;
                return Ok(Target { before, ..target });
            }
        } else if let Some(fd) = self.make_file(name, PLACEHOLDER)? {
            return Ok(Target {
                directory: self.directory().clone(),
                name: name.as_os_str().to_owned(),
                fd,
                before,
            });
        }
        let found = self.directory().existing(name)?;
        self.directory().target(name, found, source)
    }
}

impl Directory {
    /// The existing file as a mount point; `None` if it does not exist.
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
                before: TargetOrigin::Existing(found.identity()),
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

/// Whether a mount of a `source` may hide `found`.
fn may_cover(source: FileKind, found: FileKind) -> bool {
    match (source, found) {
        (FileKind::Directory, _) | (_, FileKind::Directory) => source == found,
        (_, FileKind::Regular) => true,
        (source, found) => source == found || (source.is_device() && found.is_device()),
    }
}
