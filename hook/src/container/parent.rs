//! The directory of a path's last component.

use std::path::Path;

use device_class::host::DeviceNumber;
use nix::sys::stat::fstat;

use super::policy::Refusal;
use super::{
    DeviceAccess, Directory, Error, FileKind, Handle, Identity, Name, Procfs, Result, Target,
    WritableDirectory, device_number,
};

/// The directory of a path's last component, resolved once. If the hook may not write to the
/// directory, no entry is created in it. Its existing files can still be mount points, because
/// a mount changes nothing in the file below. The value is cheap to clone.
#[derive(Clone, Debug)]
pub enum Parent {
    Writable(WritableDirectory),
    /// The directory must not be changed.
    Protected(Directory, Refusal),
}

impl Parent {
    /// Opens the entry `name` without following a symbolic link. Returns `None` if there is no
    /// such entry.
    pub fn open(&self, name: Name<'_>) -> Result<Option<Handle>> {
        self.directory().open(name)
    }

    /// Returns a mount point for a source of this kind: the existing file, or a new directory
    /// or empty file. See [`WritableDirectory::mount_point`].
    ///
    /// # Errors
    /// [`super::Error::NotWritable`] if the file does not exist and the directory must not be
    /// changed.
    pub fn mount_point(&self, name: Name<'_>, source: FileKind) -> Result<Target> {
        match self {
            Self::Writable(directory) => directory.mount_point(name, source),
            Self::Protected(directory, refusal) => directory
                .existing_mount_point(name, source)?
                .ok_or_else(|| refusal.into_error(&directory.path_of(name))),
        }
    }

    /// Returns the existing file `name` as a mount point, or `None` if it does not exist.
    pub fn existing_mount_point(&self, name: Name<'_>, source: FileKind) -> Result<Option<Target>> {
        self.directory().existing_mount_point(name, source)
    }

    /// Returns the identity of the directory itself.
    pub fn identity(&self) -> Result<Identity> {
        let directory = self.directory();
        let stat =
            fstat(directory).map_err(|errno| Error::system("look at", directory.path(), errno))?;
        Ok(Identity::from_stat(&stat))
    }

    /// Creates a symbolic link. See [`WritableDirectory::symlink`].
    pub fn symlink(&self, name: Name<'_>, target: &Path) -> Result<()> {
        self.writable(name)?.symlink(name, target)
    }

    /// Creates a symbolic link, or returns the kind of the file that has the name already. An
    /// existing link with the same text is kept, as if it had been created.
    ///
    /// # Errors
    /// [`super::Error::NotWritable`] if no file has the name and the directory must not be changed.
    pub fn symlink_or_find(&self, name: Name<'_>, target: &Path) -> Result<Option<FileKind>> {
        match self {
            Self::Writable(directory) => directory.symlink_or_find(name, target),
            Self::Protected(directory, refusal) => match directory.open(name)? {
                Some(found) => Ok(Some(found.kind())),
                None => Err(refusal.into_error(&directory.path_of(name))),
            },
        }
    }

    /// Changes the target of a symbolic link. See [`WritableDirectory::redirect_link`].
    pub fn redirect_link(&self, name: Name<'_>, target: &Path) -> Result<()> {
        self.writable(name)?.redirect_link(name, target)
    }

    /// Returns whether `found`, an entry of this directory, is a mount point.
    pub(crate) fn is_mounted(&self, found: &Handle, proc: &Procfs) -> Result<bool> {
        Ok(proc.mount_id(found)? != proc.mount_id(self.directory())?)
    }

    /// Removes an entry; a directory must be empty. See [`WritableDirectory::remove`].
    pub fn remove(&self, name: Name<'_>, kind: FileKind) -> Result<()> {
        self.writable(name)?.remove(name, kind)
    }

    /// Creates a device node, or uses an existing one of the same device. See
    /// [`WritableDirectory::make_device`].
    pub fn make_device(
        &self,
        name: Name<'_>,
        device: DeviceNumber,
        access: DeviceAccess,
    ) -> Result<()> {
        if let Self::Protected(directory, _) = self
            && let Some(found) = directory.open(name)?
            && device_number(&found) == Some(device)
        {
            return Ok(());
        }
        self.writable(name)?.make_device(name, device, access)
    }

    fn directory(&self) -> &Directory {
        match self {
            Self::Writable(directory) => directory.directory(),
            Self::Protected(directory, _) => directory,
        }
    }

    fn writable(&self, name: Name<'_>) -> Result<&WritableDirectory> {
        match self {
            Self::Writable(directory) => Ok(directory),
            Self::Protected(directory, refusal) => {
                Err(refusal.into_error(&directory.path_of(name)))
            }
        }
    }
}
