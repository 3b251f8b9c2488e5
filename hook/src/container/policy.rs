//! Decides to which directories of a container the hook may write. No other module makes this
//! decision.
//!
//! A volume belongs to other containers or to the host, and a symbolic link in an image can lead
//! any path into a volume. So the policy examines a directory handle and not a path. Only
//! [`WritableDirectory`] has operations that create or change files, and only this module creates a
//! [`WritableDirectory`], for a directory
//!
//! - on the mount of the container's root file system,
//! - on a tmpfs that the runtime creates for this container, according to config.json (`/dev`,
//!   and `/run` with some engines), or
//! - on a file system that the hook itself mounted.
//!
//! Mounts are compared by their ids. Two mounts that exist at the same time have different ids,
//! and an open handle keeps each compared mount in existence.

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use rooted_path::{LastLink, ResolvedPath, Walk};

use super::{Directory, Error, FileKind, Handle, Procfs, Result, RootDir};

/// The reason for which the hook must not write to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The directory is on a volume or another mount that the container may share.
    OtherMount,
    /// The container's root is the host's root directory.
    HostRoot,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherMount => {
                "it is on a volume or another mount, not on the container's root file system"
            }
            Self::HostRoot => "the container's root file system is the host's own",
        })
    }
}

/// A directory in a container to which the hook may write.
#[derive(Clone, Debug)]
pub struct WritableDirectory {
    directory: Directory,
    /// The id of the mount that contains the directory.
    mount_id: u64,
    proc: Rc<Procfs>,
}

impl WritableDirectory {
    /// Returns `root` as a writable directory. `root` must be the root directory of a file system
    /// that the hook itself has mounted.
    pub(crate) fn on_own_mount(root: OwnedFd, path: &Path, proc: &Rc<Procfs>) -> Result<Self> {
        Ok(Self {
            mount_id: proc.read_mount_id(&root)?,
            directory: Directory::new(root, path),
            proc: Rc::clone(proc),
        })
    }

    /// Returns `directory`, a subdirectory of this directory, as a writable directory. Fails if
    /// `directory` is on another mount.
    pub(super) fn admit_subdirectory(&self, directory: Directory) -> Result<Self> {
        self.check_mount(&directory, directory.path())?;
        Ok(Self {
            directory,
            mount_id: self.mount_id,
            proc: Rc::clone(&self.proc),
        })
    }

    /// Checks that `file`, an entry of this directory, is not a mount point. `path` is for the
    /// error message.
    pub(super) fn check_mount(&self, file: impl AsFd, path: &Path) -> Result<()> {
        if self.proc.read_mount_id(file)? == self.mount_id {
            return Ok(());
        }
        Err(Refusal::OtherMount.into_error(path))
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the id of the mount that contains the directory.
    pub(super) fn mount_id(&self) -> u64 {
        self.mount_id
    }

    pub(super) fn proc(&self) -> &Procfs {
        &self.proc
    }
}

impl AsFd for WritableDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Refusal {
    pub(super) fn into_error(self, path: &Path) -> Error {
        Error::NotWritable {
            path: path.to_owned(),
            reason: self,
        }
    }
}

/// The rules for the mounts of one container to which the hook may write.
#[derive(Debug)]
pub(super) struct WritePolicy {
    proc: Rc<Procfs>,
    root_mount_id: u64,
    is_host_root: bool,
    /// The paths at which the runtime mounts a new tmpfs, according to config.json.
    tmpfs_paths: Vec<PathBuf>,
    /// The ids of the tmpfs mounts that were found at these paths, with open handles on the mounts.
    /// As long as a handle is open, the kernel does not reuse the id of the mount.
    tmpfs_mounts: RefCell<Vec<(u64, Handle)>>,
}

impl WritePolicy {
    /// Creates the policy for the container whose root directory is `root`. The caller must keep
    /// `root` open as long as it uses the policy, so that the kernel does not reuse the mount's
    /// id.
    pub(super) fn new(
        root: &RootDir,
        is_host_root: bool,
        tmpfs_paths: Vec<PathBuf>,
        proc: &Rc<Procfs>,
    ) -> Result<Self> {
        Ok(Self {
            proc: Rc::clone(proc),
            root_mount_id: proc.read_mount_id(root)?,
            is_host_root,
            tmpfs_paths,
            tmpfs_mounts: RefCell::default(),
        })
    }

    /// Returns `directory` as a writable directory if the policy allows this. Otherwise returns
    /// `directory` with the reason for the refusal.
    pub(super) fn check_directory(
        &self,
        root: &RootDir,
        directory: Directory,
    ) -> Result<std::result::Result<WritableDirectory, (Directory, Refusal)>> {
        let mount_id = self.proc.read_mount_id(&directory)?;
        let refusal = if mount_id == self.root_mount_id {
            self.is_host_root.then_some(Refusal::HostRoot)
        } else {
            (!self.is_own_tmpfs(root, mount_id)?).then_some(Refusal::OtherMount)
        };
        Ok(match refusal {
            Some(refusal) => Err((directory, refusal)),
            None => Ok(WritableDirectory {
                directory,
                mount_id,
                proc: Rc::clone(&self.proc),
            }),
        })
    }

    fn is_own_tmpfs(&self, root: &RootDir, mount_id: u64) -> Result<bool> {
        if self
            .tmpfs_mounts
            .borrow()
            .iter()
            .any(|(id, _)| *id == mount_id)
        {
            return Ok(true);
        }
        for path in &self.tmpfs_paths {
            if let Some(tmpfs_root) = self.open_own_tmpfs(root, path, mount_id)? {
                self.tmpfs_mounts.borrow_mut().push((mount_id, tmpfs_root));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a handle on the tmpfs at `path` if the tmpfs has the mount id `mount_id` and the
    /// runtime created it.
    ///
    /// A symbolic link in the image can lead the mount point of a volume to `path`, or the mount
    /// point of the tmpfs to another path. Two conditions exclude both cases: no component of
    /// `path` is a symbolic link, and the tmpfs is mounted directly on the container's root file
    /// system.
    fn open_own_tmpfs(&self, root: &RootDir, path: &Path, mount_id: u64) -> Result<Option<Handle>> {
        let Some((parent, tmpfs_root)) = walk_without_links(root, path) else {
            return Ok(None);
        };
        let parent = parent.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        let is_own = self.proc.read_mount_id(&tmpfs_root)? == mount_id
            && self.proc.read_mount_id(parent)? == self.root_mount_id
            && fstatfs(&tmpfs_root).is_ok_and(|statfs| statfs.filesystem_type() == TMPFS_MAGIC)
            && self.proc.is_mounted_on(&tmpfs_root, root)?;
        Ok(is_own.then_some(tmpfs_root))
    }
}

/// Opens the file `path` and its parent directory. The parent is `None` if it is the root
/// directory. Returns `None` if the file does not exist or a component of `path` is a symbolic
/// link.
fn walk_without_links(root: &RootDir, path: &Path) -> Option<(Option<Handle>, Handle)> {
    let mut walk = Walk::new(root.as_fd(), path, LastLink::Follow).ok()?;
    while let Some(step) = walk.step().ok()? {
        if step.file.handle.kind() == FileKind::Symlink {
            return None;
        }
    }
    let ResolvedPath {
        mut trail,
        missing_names,
        ..
    } = walk.finish().ok()?;
    let file = trail.pop().filter(|_| missing_names.is_empty())?;
    Some((trail.pop().map(|parent| parent.handle), file.handle))
}
