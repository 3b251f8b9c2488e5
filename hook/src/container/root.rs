//! The operations on a container's root.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use device_class::host::DeviceNumber;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::creator::Creator;
use super::path::split_leaf;
use super::{
    DeviceAccess, Directory, Error, FileKind, Handle, Name, Owner, Procfs, Resolver, Result,
    RootDir, Target,
};

/// The mode of directories made on the way to something else.
const PARENT_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A container's root directory. Paths are resolved in it, with every symbolic
/// link followed inside it, and never out of it.
///
/// A path may be absolute or not: both start at the root.
#[derive(Debug)]
pub struct ContainerRoot {
    root: RootDir,
    owner: Owner,
    proc: Rc<Procfs>,
    _creator: Option<Creator>,
}

impl ContainerRoot {
    /// Opens the directory `rootfs` of the current mount namespace as a root:
    /// for a namespace that was entered by other means, and for tests. Files
    /// are created as the user that the process is.
    ///
    /// # Errors
    /// [`Error::System`] if there is no such directory.
    pub fn open(rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let root = RootDir::open(rootfs, resolver)?;
        Self::new(root, Owner::HOST_ROOT, Rc::new(Procfs::open()?))
    }

    pub(super) fn new(root: RootDir, owner: Owner, proc: Rc<Procfs>) -> Result<Self> {
        Ok(Self {
            root,
            owner,
            proc,
            _creator: owner.assume()?,
        })
    }

    /// Who files are created as.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    pub(crate) fn proc(&self) -> &Rc<Procfs> {
        &self.proc
    }

    /// Finds what `path` leads to. None if there is nothing.
    ///
    /// # Errors
    /// [`Error::Links`] on a loop; otherwise [`Error::System`].
    pub fn resolve(&self, path: &Path) -> Result<Option<Handle>> {
        self.root.lookup(path)
    }

    /// Finds the directory `path`, or makes it and the ones above it, with
    /// `mode`.
    ///
    /// # Errors
    /// [`Error::Dangling`] if a link in the way points to nothing;
    /// [`Error::WrongKind`] if something else is in the way;
    /// [`Error::ReadOnly`] if it cannot be made.
    pub fn create_dir_all(&self, path: &Path, mode: Mode) -> Result<Directory> {
        let handle = self.root.create_dir_all(path, mode)?;
        Ok(Directory::new(handle.into_fd(), path))
    }

    /// The place at `path` for a mount of a `source` of that kind. See
    /// [`Directory::mount_point`].
    ///
    /// # Errors
    /// Those of [`Self::create_dir_all`] and [`Directory::mount_point`].
    pub fn mount_point(&self, path: &Path, source: FileKind) -> Result<Target> {
        let (directory, name) = self.parent(path)?;
        directory.mount_point(name, source)
    }

    /// The place at `path` for a mount that covers what is there. None if there
    /// is nothing: nothing is made.
    ///
    /// # Errors
    /// Those of [`Directory::existing_mount_point`].
    pub fn existing_mount_point(&self, path: &Path, source: FileKind) -> Result<Option<Target>> {
        let (parent, name) = split_leaf(path)?;
        match self.root.lookup(parent)? {
            Some(handle) if handle.kind() == FileKind::Directory => {
                Directory::new(handle.into_fd(), parent).existing_mount_point(name, source)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Makes the symbolic link `path` with the text `target`. See
    /// [`Directory::symlink`].
    ///
    /// # Errors
    /// Those of [`Self::create_dir_all`] and [`Directory::symlink`].
    pub fn symlink(&self, path: &Path, target: &Path) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        directory.symlink(name, target)
    }

    /// Makes the device node `path`. See [`Directory::make_device`].
    ///
    /// # Errors
    /// Those of [`Self::create_dir_all`] and [`Directory::make_device`].
    pub fn make_device(
        &self,
        path: &Path,
        device: DeviceNumber,
        access: DeviceAccess,
    ) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        directory.make_device(name, device, access)
    }

    /// The content of the regular file `path`. None if there is no such file.
    ///
    /// Nothing but a regular file is ever opened: opening a device of a
    /// hostile image could do harm by itself.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if it is something else, [`Error::TooLarge`] if it
    /// has more than `cap` bytes.
    pub fn read_file(&self, path: &Path, cap: usize) -> Result<Option<Vec<u8>>> {
        let Some(handle) = self.root.lookup(path)? else {
            return Ok(None);
        };
        if handle.kind() != FileKind::Regular {
            return Err(Error::WrongKind {
                path: path.to_owned(),
                found: handle.kind(),
                wanted: FileKind::Regular,
            });
        }
        // The descriptor leads to the very file that was looked at.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = File::from(self.proc.reopen(&handle, flags, path)?);
        let mut bytes = Vec::new();
        let limit = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
        if let Err(error) = file.take(limit).read_to_end(&mut bytes) {
            return Err(Error::System {
                action: "read",
                path: path.to_owned(),
                errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
            });
        }
        if bytes.len() > cap {
            let path = path.to_owned();
            return Err(Error::TooLarge { path, cap });
        }
        Ok(Some(bytes))
    }

    /// Puts a file with the content `bytes` in the place of `path` in one
    /// step. The new file takes mode and owner from the old one; without one
    /// it has `mode`.
    ///
    /// If `path` is a symbolic link, the file that it leads to inside the root
    /// is replaced and the link is kept: an image that keeps the file
    /// elsewhere finds it there. A link that leads to nothing is an error.
    ///
    /// # Errors
    /// [`Error::Dangling`], [`Error::WrongKind`] if something else has the
    /// name, [`Error::ReadOnly`], [`Error::System`] (`EBUSY` if a mount covers
    /// the file).
    pub fn replace_file(&self, path: &Path, bytes: &[u8], mode: Mode) -> Result<()> {
        let place = self.root.place(path)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = Directory::new(place.directory.into_fd(), parent);
        directory.replace(Name::new(&place.name)?, place.found.as_ref(), bytes, mode)
    }

    fn parent<'p>(&self, path: &'p Path) -> Result<(Directory, Name<'p>)> {
        let (parent, name) = split_leaf(path)?;
        Ok((self.create_dir_all(parent, PARENT_MODE)?, name))
    }
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
