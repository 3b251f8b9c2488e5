//! Decides to which directories of a container the hook may write. No other module makes this
//! decision.
//!
//! A volume belongs to other containers or to the host, and a symbolic link in an image can lead
//! any path into a volume. The policy therefore examines a directory handle and not a path. Only
//! [`WritableDirectory`] has operations that create or change files, and only this module
//! creates a [`WritableDirectory`], for a directory
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

#[derive(Clone, Debug)]
pub struct WritableDirectory {
    directory: Directory,
    mount: u64,
    proc: Rc<Procfs>,
}

impl WritableDirectory {
    /// Returns `root` as writable. `root` must be the root directory of a file system that the
    /// hook itself has mounted.
    pub(crate) fn on_own_mount(root: OwnedFd, path: &Path, proc: &Rc<Procfs>) -> Result<Self> {
        Ok(Self {
            mount: proc.mount_id(&root)?,
            directory: Directory::new(root, path),
            proc: Rc::clone(proc),
        })
    }

    /// Returns `directory`, a subdirectory of this one, as writable. The call fails if
    /// `directory` is on another mount.
    pub(super) fn make_writable(&self, directory: Directory) -> Result<Self> {
        self.check_mount(&directory, directory.path())?;
        Ok(Self {
            directory,
            mount: self.mount,
            proc: Rc::clone(&self.proc),
        })
    }

    /// Checks that `file`, an entry of this directory, is no mount point. `path` is for the
    /// error.
    pub(super) fn check_mount(&self, file: impl AsFd, path: &Path) -> Result<()> {
        if self.proc.mount_id(file)? == self.mount {
            return Ok(());
        }
        Err(Refusal::OtherMount.into_error(path))
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the id of the mount that contains the directory.
    pub(super) fn mount(&self) -> u64 {
        self.mount
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
    root_mount: u64,
    is_host_root: bool,
    /// The paths at which the runtime mounts a new tmpfs, according to config.json.
    tmpfs: Vec<PathBuf>,
    /// The ids of the tmpfs mounts that were found at `tmpfs`, with open handles on the mounts.
    /// The kernel reuses the id of a mount only when no handle is open.
    found_tmpfs: RefCell<Vec<(u64, Handle)>>,
}

impl WritePolicy {
    /// Creates the policy for the container whose root directory is `root`. The caller must keep
    /// `root` open as long as it uses the policy, so that the kernel does not reuse the mount's
    /// id.
    pub(super) fn new(
        root: &RootDir,
        is_host_root: bool,
        tmpfs: Vec<PathBuf>,
        proc: &Rc<Procfs>,
    ) -> Result<Self> {
        Ok(Self {
            proc: Rc::clone(proc),
            root_mount: proc.mount_id(root)?,
            is_host_root,
            tmpfs,
            found_tmpfs: RefCell::default(),
        })
    }

    /// Returns `directory` as writable if the policy allows that, and otherwise `directory` with
    /// the reason for the refusal.
    pub(super) fn admit(
        &self,
        root: &RootDir,
        directory: Directory,
    ) -> Result<std::result::Result<WritableDirectory, (Directory, Refusal)>> {
        let mount = self.proc.mount_id(&directory)?;
        let refusal = if mount == self.root_mount {
            self.is_host_root.then_some(Refusal::HostRoot)
        } else {
            (!self.is_own_tmpfs(root, mount)?).then_some(Refusal::OtherMount)
        };
        Ok(match refusal {
            Some(refusal) => Err((directory, refusal)),
            None => Ok(WritableDirectory {
                directory,
                mount,
                proc: Rc::clone(&self.proc),
            }),
        })
    }

    fn is_own_tmpfs(&self, root: &RootDir, mount: u64) -> Result<bool> {
        if self.found_tmpfs.borrow().iter().any(|(id, _)| *id == mount) {
            return Ok(true);
        }
        for path in &self.tmpfs {
            if let Some(top) = self.open_own_tmpfs(root, path, mount)? {
                self.found_tmpfs.borrow_mut().push((mount, top));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a handle on the tmpfs at `path` if the tmpfs has the mount id `mount` and the
    /// runtime created it.
    ///
    /// A symbolic link in the image can lead the mount point of a volume to `path`, or the mount
    /// point of the tmpfs to another path. Two conditions exclude both cases: no component of
    /// `path` is a symbolic link, and the tmpfs is mounted directly on the container's root file
    /// system.
    fn open_own_tmpfs(&self, root: &RootDir, path: &Path, mount: u64) -> Result<Option<Handle>> {
        let Some((parent, top)) = walk_without_links(root, path) else {
            return Ok(None);
        };
        let parent = parent.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        let is_own = self.proc.mount_id(&top)? == mount
            && self.proc.mount_id(parent)? == self.root_mount
            && fstatfs(&top).is_ok_and(|statfs| statfs.filesystem_type() == TMPFS_MAGIC)
            && self.proc.is_mounted_on(&top, root)?;
        Ok(is_own.then_some(top))
    }
}

/// Opens the file `path` and its parent directory. The parent is `None` if it is the root. The
/// result is `None` if the file does not exist or a component of `path` is a symbolic link.
fn walk_without_links(root: &RootDir, path: &Path) -> Option<(Option<Handle>, Handle)> {
    let mut walk = Walk::new(root.as_fd(), path, LastLink::Follow).ok()?;
    while let Some(step) = walk.step().ok()? {
        if step.found.handle.kind() == FileKind::Symlink {
            return None;
        }
    }
    let ResolvedPath {
        mut trail, missing, ..
    } = walk.finish().ok()?;
    let top = trail.pop().filter(|_| missing.is_empty())?;
    Some((trail.pop().map(|parent| parent.handle), top.handle))
}
