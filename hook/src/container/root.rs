//! Resolves paths inside a container's root directory.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use device_class::host::DeviceNumber;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use rooted_path::{LastLink, ResolvedPath, Walk, Waypoint, split_leaf};

use super::creator::FileOwnerGuard;
use super::policy::WritePolicy;
use super::{
    DeviceAccess, Directory, Error, FileKind, FileOwner, HANDLE, Handle, Name, Parent, Procfs,
    Resolver, Result, RootDir, Target, WritableDirectory, WritableFile, file,
};

const PARENT_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A container's root directory. Absolute and relative paths both start at this directory, and
/// symbolic links are resolved inside it, so that no path leads to a file of the host.
#[derive(Debug)]
pub struct ContainerRoot {
    root: RootDir,
    policy: WritePolicy,
    owner: FileOwner,
    can_make_devices: bool,
    proc: Rc<Procfs>,
    _owner_guard: Option<FileOwnerGuard>,
}

/// The properties of a container's root that must be determined before this process enters the
/// container's mount namespace.
#[derive(Debug)]
pub(super) struct RootProperties {
    pub(super) owner: FileOwner,
    pub(super) can_make_devices: bool,
    pub(super) is_host_root: bool,
    /// The paths at which the runtime mounts a new tmpfs, according to config.json.
    pub(super) tmpfs: Vec<PathBuf>,
}

impl ContainerRoot {
    /// Opens the directory `rootfs` of the current mount namespace as a container's root. New
    /// files belong to the user of this process. Tests use this function, and so do callers that
    /// have entered the namespace in another way than [`super::ContainerNamespace::enter`].
    pub fn open(rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let properties = RootProperties {
            owner: FileOwner::ROOT,
            can_make_devices: true,
            is_host_root: false,
            tmpfs: Vec::new(),
        };
        let root = RootDir::open(rootfs, resolver)?;
        Self::new(root, properties, Rc::new(Procfs::open()?))
    }

    pub(super) fn new(root: RootDir, properties: RootProperties, proc: Rc<Procfs>) -> Result<Self> {
        Ok(Self {
            policy: WritePolicy::new(&root, properties.is_host_root, properties.tmpfs, &proc)?,
            root,
            owner: properties.owner,
            can_make_devices: properties.can_make_devices,
            proc,
            _owner_guard: properties.owner.assume()?,
        })
    }

    /// Returns the owner that new files get.
    pub fn owner(&self) -> FileOwner {
        self.owner
    }

    /// Returns whether processes of the container can open device nodes that are created here.
    /// The kernel does not permit that in a user namespace other than the initial one.
    pub fn can_make_devices(&self) -> bool {
        self.can_make_devices
    }

    pub(crate) fn proc(&self) -> &Rc<Procfs> {
        &self.proc
    }

    /// Opens the file `path` as an `O_PATH` handle. Returns `None` if the file does not exist.
    pub fn resolve(&self, path: &Path) -> Result<Option<Handle>> {
        Ok(self.root.lookup(path)?)
    }

    /// Opens the directory `path`. Returns `None` if there is no file or another kind of file at
    /// the path.
    pub fn existing_directory(&self, path: &Path) -> Result<Option<Directory>> {
        let found = self.root.lookup(path)?;
        let directory = found.filter(|found| found.kind() == FileKind::Directory);
        Ok(directory.map(|found| Directory::new(found.into_fd(), path)))
    }

    /// Opens the parent directory of `path`, and creates it if it is missing. Returns the parent
    /// and the last component of `path`.
    pub fn parent<'p>(&self, path: &'p Path) -> Result<(Parent, Name<'p>)> {
        let (parent, name) = split_leaf(path)?;
        Ok((self.directory(parent, PARENT_MODE)?, name))
    }

    /// Opens the parent directory of `path`. Returns `None` if the parent does not exist.
    pub fn existing_parent<'p>(&self, path: &'p Path) -> Result<Option<(Parent, Name<'p>)>> {
        let (parent, name) = split_leaf(path)?;
        let parent = self.existing_directory_as_parent(parent)?;
        Ok(parent.map(|parent| (parent, name)))
    }

    /// Opens the directory `path`, so that entries can be created in it. Returns `None` if there
    /// is no file or another kind of file at the path.
    pub fn existing_directory_as_parent(&self, path: &Path) -> Result<Option<Parent>> {
        let Some(directory) = self.existing_directory(path)? else {
            return Ok(None);
        };
        Ok(Some(match self.policy.admit(&self.root, directory)? {
            Ok(directory) => Parent::Writable(directory),
            Err((directory, refusal)) => Parent::Protected(directory, refusal),
        }))
    }

    /// Opens the directory `path`, and creates it and its parents with `mode` if they are
    /// missing.
    ///
    /// # Errors
    /// The errors of [`Self::parent`], and [`Error::NotWritable`] if the directory exists but the
    /// hook may not write to it.
    pub fn create_dir_all(&self, path: &Path, mode: Mode) -> Result<WritableDirectory> {
        match self.directory(path, mode)? {
            Parent::Writable(directory) => Ok(directory),
            Parent::Protected(_, refusal) => Err(refusal.into_error(path)),
        }
    }

    /// Returns the mount point at `path` for a file of the kind `source`, and creates it if it is
    /// missing. See [`Parent::mount_point`].
    pub fn mount_point(&self, path: &Path, source: FileKind) -> Result<Target> {
        let (parent, name) = self.parent(path)?;
        parent.mount_point(name, source)
    }

    /// Returns the mount point at `path` for a file of the kind `source`, or `None` if there is
    /// no file at the path.
    pub fn existing_mount_point(&self, path: &Path, source: FileKind) -> Result<Option<Target>> {
        let (parent, name) = split_leaf(path)?;
        match self.root.lookup(parent)? {
            Some(handle) if handle.kind() == FileKind::Directory => {
                Directory::new(handle.into_fd(), parent).existing_mount_point(name, source)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Creates the symbolic link `path` to `target`. See [`Parent::symlink`].
    pub fn symlink(&self, path: &Path, target: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        parent.symlink(name, target)
    }

    /// Creates the device node `path` for `device`. See [`Parent::make_device`].
    pub fn make_device(
        &self,
        path: &Path,
        device: DeviceNumber,
        access: DeviceAccess,
    ) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        parent.make_device(name, device, access)
    }

    /// Reads the regular file `path`, which must not have more than `cap` bytes. Returns `None`
    /// if the file does not exist.
    pub fn read_file(&self, path: &Path, cap: usize) -> Result<Option<Vec<u8>>> {
        let handle = self.root.lookup(path)?;
        handle
            .map(|handle| file::read_regular_file(&handle, &self.proc, path, cap))
            .transpose()
    }

    /// Resolves `path` to a file that can be read and replaced. The file need not exist.
    ///
    /// If `path` is a symbolic link, the result is the file to which the link leads, and a
    /// replacement keeps the link.
    ///
    /// # Errors
    /// [`Error::NotWritable`] if the file is on a mount that may not be written to, or is a
    /// mount point itself; [`Error::Dangling`] if a link leads to a missing file;
    /// [`Error::WrongKind`] if the path is a directory.
    pub fn file(&self, path: &Path) -> Result<WritableFile> {
        let ResolvedPath {
            mut trail,
            mut missing,
            ..
        } = self.resolve_to_create(path)?;
        let (name, existing) = match (missing.pop(), trail.pop()) {
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
            Ok(directory) => WritableFile::new(directory, missing, name, existing),
            Err((_, refusal)) => Err(refusal.into_error(path)),
        }
    }

    fn directory(&self, path: &Path, mode: Mode) -> Result<Parent> {
        // Most directories exist, and a single openat2(2) opens them.
        let flags = HANDLE | OFlag::O_DIRECTORY;
        let (handle, missing) = match self.root.open_file(path, flags) {
            Ok(Some(fd)) => return self.admit(Directory::new(fd, path), &[], path, mode),
            Ok(None) => {
                let ResolvedPath { trail, missing, .. } = self.resolve_to_create(path)?;
                (self.last_handle(trail)?, missing)
            }
            // Opening fails with ENOTDIR for a file at `path` and for a file in the place of a
            // parent. The lookup finds only the former.
            Err(error) => (self.root.lookup(path)?.ok_or(error)?, Vec::new()),
        };
        if handle.kind() != FileKind::Directory {
            return Err(Error::WrongKind {
                path: path.to_owned(),
                found: handle.kind(),
                wanted: FileKind::Directory,
            });
        }
        let existing_path = path.ancestors().nth(missing.len()).unwrap_or(path);
        let directory = Directory::new(handle.into_fd(), existing_path);
        self.admit(directory, &missing, path, mode)
    }

    /// Asks the policy whether the hook may write to `directory`, and creates the directories
    /// `missing` below it, each inside the previous one. `path` is the path of the last one.
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

    /// Resolves `path` as far as its components exist, so that the caller can create the others.
    /// The call fails if a symbolic link leads to a missing file, or if a missing component is
    /// followed by `..`.
    fn resolve_to_create(&self, path: &Path) -> Result<ResolvedPath> {
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

    /// Returns the handle of the last file in `trail`, or a handle on the root if `trail` is
    /// empty.
    fn last_handle(&self, mut trail: Vec<Waypoint>) -> Result<Handle> {
        match trail.pop() {
            Some(last) => Ok(last.handle),
            None => Ok(self.root.handle()?),
        }
    }
}
