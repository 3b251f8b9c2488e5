//! Opens the entries of a directory in a container, and creates entries if the hook may write to
//! the directory.

use std::path::Path;

use device_class::host::DeviceNumber;
use nix::sys::stat::fstat;

use super::policy::NotWritableReason;
use super::{
    DeviceAccess, Directory, Error, FileKind, FileName, Handle, Identity, MountTarget, Procfs,
    Result, WritableDirectory, find_device_number,
};

/// A handle on the parent directory of a path. It can be cloned at low cost.
///
/// If the hook may not write to the directory, it does not create entries there. An existing file
/// can still be a mount point, because a mount does not change the file that it hides.
#[derive(Clone, Debug)]
pub enum Parent {
    /// The hook may create, change and remove entries of this directory.
    Writable(WritableDirectory),
    /// The hook must not create, change or remove entries of this directory.
    Protected(Directory, NotWritableReason),
}

impl Parent {
    /// Opens the entry `name`. If the entry is a symbolic link, opens the link itself. Returns
    /// `None` if there is no such entry.
    pub fn open(&self, name: FileName<'_>) -> Result<Option<Handle>> {
        self.directory().open(name)
    }

    /// Returns the entry `name` as a mount point for a file of the kind `source_kind`. If there is
    /// no such entry, creates a directory or an empty file. See
    /// [`WritableDirectory::open_or_create_mount_point`].
    ///
    /// # Errors
    /// [`super::Error::NotWritable`] if the entry does not exist and the hook may not write to the
    /// directory.
    pub fn open_or_create_mount_point(
        &self,
        name: FileName<'_>,
        source_kind: FileKind,
    ) -> Result<MountTarget> {
        match self {
            Self::Writable(directory) => directory.open_or_create_mount_point(name, source_kind),
            Self::Protected(directory, not_writable_reason) => directory
                .open_mount_point(name, source_kind)?
                .ok_or_else(|| not_writable_reason.into_error(&directory.entry_path(name))),
        }
    }

    /// Returns the entry `name` as a mount point for a file of the kind `source_kind`. Returns
    /// `None` if there is no such entry. The method never creates a file, so it also works in a
    /// directory to which the hook may not write.
    pub fn open_mount_point(
        &self,
        name: FileName<'_>,
        source_kind: FileKind,
    ) -> Result<Option<MountTarget>> {
        self.directory().open_mount_point(name, source_kind)
    }

    /// Returns the identity (device and inode number) of the directory itself. Two paths with the
    /// same identity lead to the same directory.
    pub fn identity(&self) -> Result<Identity> {
        let directory = self.directory();
        let stat =
            fstat(directory).map_err(|errno| Error::system("look at", directory.path(), errno))?;
        Ok(Identity::from_stat(&stat))
    }

    /// Creates a symbolic link with the name `name` that leads to `target`. See
    /// [`WritableDirectory::symlink`].
    pub fn symlink(&self, name: FileName<'_>, target: &Path) -> Result<()> {
        self.require_writable(name)?.symlink(name, target)
    }

    /// Creates a symbolic link with the name `name` that leads to `target`. Returns `None` if the
    /// link was created, or if the same link already existed. If another file has the name, changes
    /// nothing and returns the kind of this file.
    ///
    /// # Errors
    /// [`super::Error::NotWritable`] if the name does not exist and the hook may not write to the
    /// directory.
    pub fn symlink_if_absent(&self, name: FileName<'_>, target: &Path) -> Result<Option<FileKind>> {
        match self {
            Self::Writable(directory) => directory.symlink_if_absent(name, target),
            Self::Protected(directory, not_writable_reason) => match directory.open(name)? {
                Some(entry) => Ok(Some(entry.kind())),
                None => Err(not_writable_reason.into_error(&directory.entry_path(name))),
            },
        }
    }

    /// Changes the target of the symbolic link `name` to `target`. See
    /// [`WritableDirectory::replace_symlink_target`].
    pub fn replace_symlink_target(&self, name: FileName<'_>, target: &Path) -> Result<()> {
        self.require_writable(name)?
            .replace_symlink_target(name, target)
    }

    /// Reports whether `entry`, an open entry of this directory, is a mount point. A mount point
    /// has another mount id than the directory that contains it.
    pub fn is_mounted(&self, entry: &Handle, procfs: &Procfs) -> Result<bool> {
        Ok(procfs.read_mount_id(entry)? != procfs.read_mount_id(self.directory())?)
    }

    /// Removes the entry `name`, which is a file or an empty directory. See
    /// [`WritableDirectory::remove`].
    pub fn remove(&self, name: FileName<'_>, kind: FileKind) -> Result<()> {
        self.require_writable(name)?.remove(name, kind)
    }

    /// Creates the device node `name` for `device`. Does nothing if a node of the same device
    /// already has this name. See [`WritableDirectory::create_device_node`].
    pub fn create_device_node(
        &self,
        name: FileName<'_>,
        device: DeviceNumber,
        access: DeviceAccess,
    ) -> Result<()> {
        if let Self::Protected(directory, _) = self
            && let Some(entry) = directory.open(name)?
            && find_device_number(&entry) == Some(device)
        {
            return Ok(());
        }
        self.require_writable(name)?
            .create_device_node(name, device, access)
    }

    fn directory(&self) -> &Directory {
        match self {
            Self::Writable(directory) => directory.directory(),
            Self::Protected(directory, _) => directory,
        }
    }

    fn require_writable(&self, name: FileName<'_>) -> Result<&WritableDirectory> {
        match self {
            Self::Writable(directory) => Ok(directory),
            Self::Protected(directory, not_writable_reason) => {
                Err(not_writable_reason.into_error(&directory.entry_path(name)))
            }
        }
    }
}
