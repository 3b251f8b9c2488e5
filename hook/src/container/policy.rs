//! Decides in which directories of a container the hook may create and change files. No other
//! module makes this decision.
//!
//! The hook must not write to volumes, because other containers or the host may use them. A
//! symbolic link in an image can lead any path into a volume. So the policy examines an open
//! directory, and not its path. Only [`WritableDirectory`] has operations that create or change
//! files. Only this module creates a [`WritableDirectory`], and only for a directory
//!
//! - on the mount of the container's root file system,
//! - on a tmpfs that the runtime creates for this container, as config.json says (`/dev`, and
//!   `/run` with some engines), or
//! - on a file system that the hook itself has mounted.
//!
//! Mounts are compared by their ids. The kernel reuses the id of a mount only after the mount was
//! freed. An open handle on a file of the mount prevents this, so compared mounts have open
//! handles.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use host_files::rooted_path::{ResolvedPath, TrailingSymlink, Walk};
use nix::libc::dev_t;
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::{Directory, Error, FileKind, Handle, Procfs, Result, RootDir};

/// The reason why the hook must not write to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWritableReason {
    /// The directory is on a volume or on another mount that other containers or the host may
    /// share.
    OtherMount,
    /// The root of the container is the root directory of the host, so the hook would change the
    /// host.
    HostRoot,
}

impl fmt::Display for NotWritableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherMount => {
                "it is on a volume or another mount, not on the container's root file system"
            }
            Self::HostRoot => "the container's root file system is the host's own",
        })
    }
}

/// A directory in a container in which the hook may create and change files. Only functions of this
/// module create such a value. They check the directory's mount, or the hook itself has mounted the
/// file system.
#[derive(Clone, Debug)]
pub struct WritableDirectory {
    directory: Directory,
    /// The id of the mount that contains the directory (`STATX_MNT_ID` of statx(2)).
    mount_id: u64,
    procfs: Rc<Procfs>,
}

impl WritableDirectory {
    /// Returns `root` as a writable directory. `root` must be the root of a file system that the
    /// hook itself has mounted.
    pub(crate) fn from_own_mount(root: OwnedFd, path: &Path, procfs: &Rc<Procfs>) -> Result<Self> {
        Ok(Self {
            mount_id: procfs.read_mount_id(&root)?,
            directory: Directory::new(root, path),
            procfs: Rc::clone(procfs),
        })
    }

    /// Returns a subdirectory of this directory as a writable directory. Fails if the subdirectory
    /// is a mount point, for example of a volume.
    pub(super) fn to_writable_subdirectory(&self, directory: Directory) -> Result<Self> {
        self.refuse_mount_point(&directory, directory.path())?;
        Ok(Self {
            directory,
            mount_id: self.mount_id,
            procfs: Rc::clone(&self.procfs),
        })
    }

    /// Fails if `file`, an open entry of this directory, is a mount point: it then has another
    /// mount id. `path` is only used in the error message.
    pub(super) fn refuse_mount_point(&self, file: impl AsFd, path: &Path) -> Result<()> {
        if self.procfs.read_mount_id(file)? == self.mount_id {
            return Ok(());
        }
        Err(NotWritableReason::OtherMount.into_error(path))
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(super) fn mount_id(&self) -> u64 {
        self.mount_id
    }

    pub(super) fn procfs(&self) -> &Procfs {
        &self.procfs
    }
}

impl AsFd for WritableDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl NotWritableReason {
    pub(super) fn into_error(self, path: &Path) -> Error {
        Error::NotWritable {
            path: path.to_owned(),
            reason: self,
        }
    }
}

/// Decides on which mounts of a container the hook may create and change files: on the root file
/// system, and on the tmpfs mounts that the runtime creates.
#[derive(Debug)]
pub(super) struct WritePolicy {
    procfs: Rc<Procfs>,
    root_mount_id: u64,
    is_host_root: bool,
    /// The paths at which config.json lets the runtime mount a new tmpfs, such as `/dev`.
    tmpfs_paths: Vec<PathBuf>,
    /// The device numbers (`st_dev`) of the file systems that the host has mounted. The root user
    /// of a running container can mount such a file system at one of `tmpfs_paths`, if a volume of
    /// the container leads to it. The list is empty for a container that has not started yet.
    host_device_numbers: BTreeSet<dev_t>,
    /// The mount ids of the tmpfs mounts that were found at `tmpfs_paths`, each with an open handle
    /// on the mount, so that the kernel does not give the id to another mount.
    tmpfs_mounts: RefCell<Vec<(u64, Handle)>>,
}

impl WritePolicy {
    /// Creates the policy for the container whose root directory is `root`. The caller must keep
    /// `root` open as long as it uses the policy, because otherwise the kernel may give the id of
    /// the root's mount to another mount.
    pub(super) fn new(
        root: &RootDir,
        is_host_root: bool,
        tmpfs_paths: Vec<PathBuf>,
        host_device_numbers: BTreeSet<dev_t>,
        procfs: &Rc<Procfs>,
    ) -> Result<Self> {
        Ok(Self {
            procfs: Rc::clone(procfs),
            root_mount_id: procfs.read_mount_id(root)?,
            is_host_root,
            tmpfs_paths,
            host_device_numbers,
            tmpfs_mounts: RefCell::default(),
        })
    }

    /// Returns `directory` as a writable directory if the hook may write to it. Otherwise the inner
    /// `Err` contains `directory` and the reason. The caller may still mount on existing files of
    /// this directory.
    pub(super) fn to_writable_directory(
        &self,
        root: &RootDir,
        directory: Directory,
    ) -> Result<std::result::Result<WritableDirectory, (Directory, NotWritableReason)>> {
        let mount_id = self.procfs.read_mount_id(&directory)?;
        let not_writable_reason = if mount_id == self.root_mount_id {
            self.is_host_root.then_some(NotWritableReason::HostRoot)
        } else {
            (!self.is_runtime_tmpfs(root, mount_id)?).then_some(NotWritableReason::OtherMount)
        };
        Ok(match not_writable_reason {
            Some(not_writable_reason) => Err((directory, not_writable_reason)),
            None => Ok(WritableDirectory {
                directory,
                mount_id,
                procfs: Rc::clone(&self.procfs),
            }),
        })
    }

    fn is_runtime_tmpfs(&self, root: &RootDir, mount_id: u64) -> Result<bool> {
        if self
            .tmpfs_mounts
            .borrow()
            .iter()
            .any(|(id, _)| *id == mount_id)
        {
            return Ok(true);
        }
        for path in &self.tmpfs_paths {
            if let Some(tmpfs_root) = self.open_runtime_tmpfs(root, path, mount_id)? {
                self.tmpfs_mounts.borrow_mut().push((mount_id, tmpfs_root));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a handle on the tmpfs that the runtime mounted at `path`. Returns `None` if the
    /// mount at `path` is not the mount `mount_id`, or is not such a tmpfs.
    ///
    /// A hostile image can contain a symbolic link, so that the runtime mounts a volume at `path`,
    /// or mounts the tmpfs elsewhere. Two conditions exclude this: no component of `path` is a
    /// symbolic link, and the tmpfs is mounted directly on the container's root file system. A
    /// process of the container can create such a mount later. So the tmpfs must not be one of the
    /// host.
    fn open_runtime_tmpfs(
        &self,
        root: &RootDir,
        path: &Path,
        mount_id: u64,
    ) -> Result<Option<Handle>> {
        let Some((parent, tmpfs_root)) = open_without_links(root, path) else {
            return Ok(None);
        };
        let parent = parent.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        let is_runtime_tmpfs = self.procfs.read_mount_id(&tmpfs_root)? == mount_id
            && self.procfs.read_mount_id(parent)? == self.root_mount_id
            && fstatfs(&tmpfs_root).is_ok_and(|statfs| statfs.filesystem_type() == TMPFS_MAGIC)
            && fstat(&tmpfs_root)
                .is_ok_and(|stat| !self.host_device_numbers.contains(&stat.st_dev))
            && self.procfs.is_mounted_on(&tmpfs_root, root)?;
        Ok(is_runtime_tmpfs.then_some(tmpfs_root))
    }
}

/// Opens the file `path` and its parent directory. The parent is `None` if it is the root
/// directory. Returns `None` if the file does not exist, or if a component of `path` is a symbolic
/// link.
fn open_without_links(root: &RootDir, path: &Path) -> Option<(Option<Handle>, Handle)> {
    let mut walk = Walk::new(root.as_fd(), path, TrailingSymlink::Follow).ok()?;
    while let Some(step) = walk.step().ok()? {
        if step.file.handle.kind() == FileKind::Symlink {
            return None;
        }
    }
    let ResolvedPath {
        mut opened_components,
        missing_names,
        ..
    } = walk.finish().ok()?;
    let file = opened_components
        .pop()
        .filter(|_| missing_names.is_empty())?;
    Some((
        opened_components.pop().map(|parent| parent.handle),
        file.handle,
    ))
}
