//! Decides where the hook may write. No other module makes this decision.
//!
//! A volume belongs to other containers or to the host, and a link in an image can lead any
//! path into a volume. The policy therefore examines a directory handle and not a path. Only
//! [`WritableDirectory`] has operations that create or change anything, and only this module
//! creates one, for a directory
//!
//! - on the mount of the container's root file system,
//! - on a tmpfs that the runtime creates for this container, according to config.json (`/dev`,
//!   and `/run` with some engines), or
//! - on a file system that the hook itself mounted.
//!
//! Mounts are compared by id. Two mounts that exist at the same time have different ids, and
//! each mount that is compared here is kept in existence by an open handle.

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use rooted_path::{LastLink, Resolved, Walk};

use super::{Directory, Error, FileKind, Handle, Procfs, Result, RootDir};

/// The reason for which a directory must not be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The directory is on a mount that does not belong to the container alone, such as a
    /// volume.
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
    /// Returns the root directory of a file system that the hook has just mounted.
    pub(crate) fn on_own_mount(root: OwnedFd, path: &Path, proc: &Rc<Procfs>) -> Result<Self> {
        Ok(Self {
            mount: proc.mount_id(&root)?,
            directory: Directory::new(root, path),
            proc: Rc::clone(proc),
        })
    }

    /// Makes `directory` writable, which was found in this one. Fails if it is on another
    /// mount.
    pub(super) fn make_writable(&self, directory: Directory) -> Result<Self> {
        self.check_mount(&directory, directory.path())?;
        Ok(Self {
            directory,
            mount: self.mount,
            proc: Rc::clone(&self.proc),
        })
    }

    /// Checks that `file`, which was found in this directory, is on the same mount. A
    /// different mount means that something is mounted on it.
    pub(super) fn check_mount(&self, file: impl AsFd, path: &Path) -> Result<()> {
        if self.proc.mount_id(file)? == self.mount {
            return Ok(());
        }
        Err(Refusal::OtherMount.into_error(path))
    }

    /// Returns the directory for reading.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the id of the mount that the directory is on.
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

/// The mounts of one container to which the hook may write.
#[derive(Debug)]
pub(super) struct WritePolicy {
    proc: Rc<Procfs>,
    root_mount: u64,
    is_host_root: bool,
    /// The paths at which the runtime mounts a new tmpfs, according to config.json.
    tmpfs: Vec<PathBuf>,
    /// The ids of those tmpfs mounts that were found. The handles keep the ids from being
    /// reused.
    found_tmpfs: RefCell<Vec<(u64, Handle)>>,
}

impl WritePolicy {
    /// Creates the policy for the container whose root directory is `root`. The caller must
    /// keep `root` open as long as the policy is used.
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

    /// Makes `directory` writable if the policy allows it. Otherwise returns it with the
    /// reason.
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

    /// Returns a handle on the tmpfs at `path`, if it is the mount `mount` and the one that
    /// the runtime created there.
    ///
    /// A link in the image can lead the path of another volume to the same place, or this
    /// mount to another path. The tree of mounts shows both: the tmpfs is found without
    /// following a link, and its parent mount is the root file system. Therefore no other
    /// mount is above it, and none covers it.
    fn open_own_tmpfs(&self, root: &RootDir, path: &Path, mount: u64) -> Result<Option<Handle>> {
        let Some((parent, top)) = walk_without_links(root, path) else {
            return Ok(None);
        };
        let parent = parent.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        let is_own = self.proc.mount_id(&top)? == mount
            && self.proc.mount_id(parent)? == self.root_mount
            && fstatfs(&top).is_ok_and(|found_tmpfs| found_tmpfs.filesystem_type() == TMPFS_MAGIC)
            && self.proc.is_mounted_on(&top, root)?;
        Ok(is_own.then_some(top))
    }
}

/// Walks to `path` without following a symbolic link. Returns the handle of its parent
/// directory, or `None` for the root, and the handle of the file.
fn walk_without_links(root: &RootDir, path: &Path) -> Option<(Option<Handle>, Handle)> {
    let mut walk = Walk::new(root.as_fd(), path, LastLink::Follow).ok()?;
    while let Some(step) = walk.step().ok()? {
        if step.found.handle.kind() == FileKind::Symlink {
            return None;
        }
    }
    let Resolved {
        mut trail, missing, ..
    } = walk.finish().ok()?;
    let top = trail.pop().filter(|_| missing.is_empty())?;
    Some((trail.pop().map(|parent| parent.handle), top.handle))
}
