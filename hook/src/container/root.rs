//! The operations on a container's root.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use device_class::host::DeviceNumber;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use rooted_path::{LastLink, Resolved, Walk, Waypoint, split_leaf};

use super::creator::FileOwnerGuard;
use super::policy::WritePolicy;
use super::{
    DeviceAccess, Directory, Error, FileKind, FileOwner, HANDLE, Handle, Name, Parent, Procfs,
    Resolver, Result, RootDir, Target, WritableDirectory, WritableFile, file,
};

const PARENT_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A container's root directory. Every symbolic link is followed inside it, so that no path
/// leads out of it. Absolute and relative paths both start at the root.
#[derive(Debug)]
pub struct ContainerRoot {
    root: RootDir,
    policy: WritePolicy,
    owner: FileOwner,
    can_make_devices: bool,
    proc: Rc<Procfs>,
    _creator: Option<FileOwnerGuard>,
}

/// Properties of a container's root that were determined before its mount namespace was
/// entered.
#[derive(Debug)]
pub(super) struct RootFacts {
    pub(super) owner: FileOwner,
    pub(super) can_make_devices: bool,
    pub(super) is_host_root: bool,
    /// The paths at which the runtime mounts a new tmpfs, according to config.json.
    pub(super) tmpfs: Vec<PathBuf>,
}

impl ContainerRoot {
    /// Opens the directory `rootfs` of the current mount namespace as a root. This is for
    /// tests, and for a namespace that was entered in another way. Files are created as the
    /// user of the process.
    pub fn open(rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let facts = RootFacts {
            owner: FileOwner::ROOT,
            can_make_devices: true,
            is_host_root: false,
            tmpfs: Vec::new(),
        };
        let root = RootDir::open(rootfs, resolver)?;
        Self::new(root, facts, Rc::new(Procfs::open()?))
    }

    pub(super) fn new(root: RootDir, facts: RootFacts, proc: Rc<Procfs>) -> Result<Self> {
        Ok(Self {
            policy: WritePolicy::new(&root, facts.is_host_root, facts.tmpfs, &proc)?,
            root,
            owner: facts.owner,
            can_make_devices: facts.can_make_devices,
            proc,
            _creator: facts.owner.assume()?,
        })
    }

    /// Returns the owner of new files.
    pub fn owner(&self) -> FileOwner {
        self.owner
    }

    /// Returns whether a device node that is created here can be opened. In a user namespace
    /// it cannot.
    pub fn can_make_devices(&self) -> bool {
        self.can_make_devices
    }

    pub(crate) fn proc(&self) -> &Rc<Procfs> {
        &self.proc
    }

    /// Resolves `path`. Returns `None` if the file does not exist.
    pub fn resolve(&self, path: &Path) -> Result<Option<Handle>> {
        Ok(self.root.lookup(path)?)
    }

    /// Opens the directory `path` for reading. Returns `None` if it does not exist or is not a
    /// directory.
    pub fn existing_directory(&self, path: &Path) -> Result<Option<Directory>> {
        let found = self.root.lookup(path)?;
        let directory = found.filter(|found| found.kind() == FileKind::Directory);
        Ok(directory.map(|found| Directory::new(found.into_fd(), path)))
    }

    /// Resolves the parent directory of `path`, creating missing directories. Returns the
    /// parent and the last component.
    pub fn parent<'p>(&self, path: &'p Path) -> Result<(Parent, Name<'p>)> {
        let (parent, name) = split_leaf(path)?;
        Ok((self.directory(parent, PARENT_MODE)?, name))
    }

    /// Resolves the parent directory of `path` without creating anything. Returns `None` if it
    /// does not exist.
    pub fn existing_parent<'p>(&self, path: &'p Path) -> Result<Option<(Parent, Name<'p>)>> {
        let (parent, name) = split_leaf(path)?;
        let parent = self.existing_directory_as_parent(parent)?;
        Ok(parent.map(|parent| (parent, name)))
    }

    /// Resolves the directory `path` without creating anything, for its entries. Returns `None`
    /// if it does not exist or is not a directory.
    pub fn existing_directory_as_parent(&self, path: &Path) -> Result<Option<Parent>> {
        let Some(directory) = self.existing_directory(path)? else {
            return Ok(None);
        };
        Ok(Some(match self.policy.admit(&self.root, directory)? {
            Ok(directory) => Parent::Writable(directory),
            Err((directory, refusal)) => Parent::Protected(directory, refusal),
        }))
    }

    /// Resolves the directory `path`, creating missing directories with `mode`.
    ///
    /// # Errors
    /// The errors of [`Self::parent`], and [`Error::NotWritable`] also if the directory exists
    /// but may not be written to.
    pub fn create_dir_all(&self, path: &Path, mode: Mode) -> Result<WritableDirectory> {
        match self.directory(path, mode)? {
            Parent::Writable(directory) => Ok(directory),
            Parent::Protected(_, refusal) => Err(refusal.into_error(path)),
        }
    }

    /// Returns the mount point at `path` for a source of this kind. See
    /// [`Parent::mount_point`].
    pub fn mount_point(&self, path: &Path, source: FileKind) -> Result<Target> {
        let (parent, name) = self.parent(path)?;
        parent.mount_point(name, source)
    }

    /// Returns the mount point at `path`, or `None` if it does not exist. Nothing is created.
    pub fn existing_mount_point(&self, path: &Path, source: FileKind) -> Result<Option<Target>> {
        let (parent, name) = split_leaf(path)?;
        match self.root.lookup(parent)? {
            Some(handle) if handle.kind() == FileKind::Directory => {
                Directory::new(handle.into_fd(), parent).existing_mount_point(name, source)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Creates the symbolic link `path` with the text `target`. See [`Parent::symlink`].
    pub fn symlink(&self, path: &Path, target: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        parent.symlink(name, target)
    }

    /// Creates the device node `path`. See [`Parent::make_device`].
    pub fn make_device(
        &self,
        path: &Path,
        device: DeviceNumber,
        access: DeviceAccess,
    ) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        parent.make_device(name, device, access)
    }

    /// Reads the regular file `path`, which must not be larger than `cap` bytes. Returns
    /// `None` if it does not exist.
    pub fn read_file(&self, path: &Path, cap: usize) -> Result<Option<Vec<u8>>> {
        let found = self.root.lookup(path)?;
        found
            .map(|found| file::read(&found, &self.proc, path, cap))
            .transpose()
    }

    /// Finds the file `path` for reading and replacing. The file need not exist.
    ///
    /// If `path` is a symbolic link, the result is the target of the link inside the root, and
    /// a replacement keeps the link.
    ///
    /// # Errors
    /// [`Error::NotWritable`] if the file is on a mount that may not be written to, or is a
    /// mount point itself; [`Error::Dangling`] if a link leads to a missing file;
    /// [`Error::WrongKind`] if the path is a directory.
    pub fn file(&self, path: &Path) -> Result<WritableFile> {
        let Resolved {
            mut trail,
            mut missing,
            ..
        } = self.resolve_to_create(path)?;
        let (name, found) = match (missing.pop(), trail.pop()) {
            (Some(name), directory) => {
                trail.extend(directory);
                (name, None)
            }
            (None, Some(file)) => (file.name, Some(file.handle)),
            (None, None) => {
                return Err(Error::WrongKind {
                    path: path.to_owned(),
                    found: FileKind::Directory,
                    wanted: FileKind::Regular,
                });
            }
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = Directory::new(self.last_handle(trail)?.into_fd(), parent);
        match self.policy.admit(&self.root, directory)? {
            Ok(directory) => WritableFile::new(directory, missing, name, found),
            Err((_, refusal)) => Err(refusal.into_error(path)),
        }
    }

    fn directory(&self, path: &Path, mode: Mode) -> Result<Parent> {
        // Most directories exist, and the kernel resolves them in one call.
        let flags = HANDLE | OFlag::O_DIRECTORY;
        let (handle, missing) = match self.root.open_file(path, flags) {
            Ok(Some(fd)) => return self.admit(Directory::new(fd, path), &[], path, mode),
            Ok(None) => {
                let Resolved { trail, missing, .. } = self.resolve_to_create(path)?;
                (self.last_handle(trail)?, missing)
            }
            // The lookup tells a file in the place of the directory from one on the way.
            Err(error) => (self.root.lookup(path)?.ok_or(error)?, Vec::new()),
        };
        if handle.kind() != FileKind::Directory {
            return Err(Error::WrongKind {
                path: path.to_owned(),
                found: handle.kind(),
                wanted: FileKind::Directory,
            });
        }
        // The last existing directory, for messages only.
        let existing_path = path.ancestors().nth(missing.len()).unwrap_or(path);
        let directory = Directory::new(handle.into_fd(), existing_path);
        self.admit(directory, &missing, path, mode)
    }

    /// Asks the policy for a directory, and creates the directories `missing` below it. `path` is
    /// the path of the last of them.
    fn admit(
        &self,
        directory: Directory,
        missing: &[OsString],
        path: &Path,
        mode: Mode,
    ) -> Result<Parent> {
        match self.policy.admit(&self.root, directory)? {
            Ok(directory) => Ok(Parent::Writable(directory.create_dirs(missing, mode)?)),
            Err((_, refusal)) if !missing.is_empty() => Err(refusal.into_error(path)),
            Err((directory, refusal)) => Ok(Parent::Protected(directory, refusal)),
        }
    }

    /// Resolves `path` as far as it exists. The caller may create the missing components.
    fn resolve_to_create(&self, path: &Path) -> Result<Resolved> {
        let end = Walk::new(self.root.as_fd(), path, LastLink::Follow)?.finish()?;
        match end.missing.first() {
            Some(missing) if end.is_dangling => Err(Error::Dangling {
                path: path.to_owned(),
                missing: missing.into(),
            }),
            Some(_) if end.missing.iter().any(|name| name == "..") => {
                Err(Error::system("open", path, Errno::ENOENT))
            }
            _ => Ok(end),
        }
    }

    /// Returns the last file of a trail, or the root if the trail is empty.
    fn last_handle(&self, mut trail: Vec<Waypoint>) -> Result<Handle> {
        match trail.pop() {
            Some(last) => Ok(last.handle),
            None => Ok(self.root.handle()?),
        }
    }
}
