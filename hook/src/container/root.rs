//! Resolves paths inside a container's root directory, so that no symbolic link of an image leads
//! to a file of the host.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use device_class::host::DeviceNumber;
use host_files::rooted_path::{OpenedComponent, ResolvedPath, TrailingSymlink, Walk, split_leaf};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::dev_t;
use nix::sys::stat::Mode;

use super::file_owner::FileOwnerGuard;
use super::policy::WritePolicy;
use super::{
    DeviceAccess, Directory, Error, FileKind, FileName, FileOwner, HANDLE_FLAGS, Handle,
    MountTarget, Parent, Procfs, Resolver, Result, RootDir, WritableDirectory, WritableFile, file,
};

const PARENT_MODE: Mode = Mode::from_bits_truncate(0o755);

/// The root directory of a container. Absolute and relative paths both start at this directory.
/// Symbolic links are resolved inside it, so that no path leads to a file of the host.
#[derive(Debug)]
pub struct ContainerRoot {
    root: RootDir,
    policy: WritePolicy,
    owner: FileOwner,
    can_create_device_nodes: bool,
    procfs: Rc<Procfs>,
    _owner_guard: Option<FileOwnerGuard>,
}

/// The properties of a container's root directory that [`ContainerRoot::new`] needs. They are read
/// before this process enters the container's mount namespace, while the host's files can be read.
#[derive(Debug)]
pub(super) struct RootProperties {
    pub(super) owner: FileOwner,
    pub(super) can_create_device_nodes: bool,
    pub(super) is_host_root: bool,
    /// The paths at which config.json lets the runtime mount a new tmpfs, such as `/dev`.
    pub(super) tmpfs_paths: Vec<PathBuf>,
    /// The device numbers of the file systems that the host has mounted, if the container runs.
    pub(super) host_device_numbers: BTreeSet<dev_t>,
}

impl ContainerRoot {
    /// Opens the directory `rootfs` of the current mount namespace as the root of a container. New
    /// files belong to the user of this process.
    ///
    /// This function is for tests, and for callers that have not entered the namespace with
    /// [`super::ContainerNamespace::enter`].
    pub fn open(rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let properties = RootProperties {
            owner: FileOwner::ROOT,
            can_create_device_nodes: true,
            is_host_root: false,
            tmpfs_paths: Vec::new(),
            host_device_numbers: BTreeSet::new(),
        };
        let root = RootDir::open(rootfs, resolver)?;
        Self::new(root, properties, Rc::new(Procfs::open()?))
    }

    pub(super) fn new(
        root: RootDir,
        properties: RootProperties,
        procfs: Rc<Procfs>,
    ) -> Result<Self> {
        Ok(Self {
            policy: WritePolicy::new(
                &root,
                properties.is_host_root,
                properties.tmpfs_paths,
                properties.host_device_numbers,
                &procfs,
            )?,
            root,
            owner: properties.owner,
            can_create_device_nodes: properties.can_create_device_nodes,
            procfs,
            _owner_guard: properties.owner.assume_for_new_files()?,
        })
    }

    /// Returns the owner of new files in the container: the user id and the group id on the host of
    /// the container's root user.
    pub fn owner(&self) -> FileOwner {
        self.owner
    }

    /// Reports whether processes of the container can open device nodes that are created in this
    /// root. The kernel permits this only in the initial user namespace.
    pub fn can_create_device_nodes(&self) -> bool {
        self.can_create_device_nodes
    }

    pub fn procfs(&self) -> &Rc<Procfs> {
        &self.procfs
    }

    /// Opens the file `path` as an `O_PATH` handle. Such a handle identifies the file, but cannot
    /// be read or written. Returns `None` if the file does not exist.
    pub fn resolve(&self, path: &Path) -> Result<Option<Handle>> {
        Ok(self.root.lookup(path)?)
    }

    /// Opens the directory `path`. Returns `None` if nothing exists at the path, or if it is not a
    /// directory.
    pub fn open_directory(&self, path: &Path) -> Result<Option<Directory>> {
        let file = self.root.lookup(path)?;
        let directory = file.filter(|file| file.kind() == FileKind::Directory);
        Ok(directory.map(|file| Directory::new(file.into_fd(), path)))
    }

    /// Opens the parent directory of `path`, and creates it with the mode 0755 if it does not
    /// exist. Returns the parent directory and the last component of `path`.
    pub fn open_or_create_parent<'p>(&self, path: &'p Path) -> Result<(Parent, FileName<'p>)> {
        let (parent, name) = split_leaf(path)?;
        Ok((self.open_or_create_directory(parent, PARENT_MODE)?, name))
    }

    /// Opens the parent directory of `path`. Returns the parent directory and the last component of
    /// `path`. Returns `None` if the parent directory does not exist.
    pub fn open_parent<'p>(&self, path: &'p Path) -> Result<Option<(Parent, FileName<'p>)>> {
        let (parent, name) = split_leaf(path)?;
        let parent = self.open_directory_as_parent(parent)?;
        Ok(parent.map(|parent| (parent, name)))
    }

    /// Opens the directory `path`, and checks whether the hook may create entries in it. Returns
    /// `None` if nothing exists at the path, or if it is not a directory.
    pub fn open_directory_as_parent(&self, path: &Path) -> Result<Option<Parent>> {
        let Some(directory) = self.open_directory(path)? else {
            return Ok(None);
        };
        Ok(Some(
            match self.policy.to_writable_directory(&self.root, directory)? {
                Ok(directory) => Parent::Writable(directory),
                Err((directory, not_writable_reason)) => {
                    Parent::Protected(directory, not_writable_reason)
                }
            },
        ))
    }

    /// Opens the directory `path`. Creates missing directories of the path with the mode `mode`.
    ///
    /// # Errors
    /// The errors of [`Self::open_or_create_parent`], and [`Error::NotWritable`] if the directory
    /// exists but the hook may not write to it.
    pub fn create_dir_all(&self, path: &Path, mode: Mode) -> Result<WritableDirectory> {
        match self.open_or_create_directory(path, mode)? {
            Parent::Writable(directory) => Ok(directory),
            Parent::Protected(_, not_writable_reason) => Err(not_writable_reason.into_error(path)),
        }
    }

    /// Returns the mount point at `path` for a file of the kind `source_kind`. Creates a missing
    /// mount point and its parent directories. See [`Parent::open_or_create_mount_point`].
    pub fn open_or_create_mount_point(
        &self,
        path: &Path,
        source_kind: FileKind,
    ) -> Result<MountTarget> {
        let (parent, name) = self.open_or_create_parent(path)?;
        parent.open_or_create_mount_point(name, source_kind)
    }

    /// Returns the mount point at `path` for a file of the kind `source_kind`. Returns `None` if
    /// nothing exists at the path.
    pub fn open_mount_point(
        &self,
        path: &Path,
        source_kind: FileKind,
    ) -> Result<Option<MountTarget>> {
        let (parent, name) = split_leaf(path)?;
        match self.root.lookup(parent)? {
            Some(handle) if handle.kind() == FileKind::Directory => {
                Directory::new(handle.into_fd(), parent).open_mount_point(name, source_kind)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Creates a symbolic link at `path` that leads to `target`. Creates missing parent
    /// directories. See [`Parent::symlink`].
    pub fn symlink(&self, path: &Path, target: &Path) -> Result<()> {
        let (parent, name) = self.open_or_create_parent(path)?;
        parent.symlink(name, target)
    }

    /// Creates a device node for `device` at `path`. Creates missing parent directories. See
    /// [`Parent::create_device_node`].
    pub fn create_device_node(
        &self,
        path: &Path,
        device: DeviceNumber,
        access: DeviceAccess,
    ) -> Result<()> {
        let (parent, name) = self.open_or_create_parent(path)?;
        parent.create_device_node(name, device, access)
    }

    /// Reads the regular file `path`. Fails if it has more than `max_bytes` bytes. Returns `None`
    /// if the file does not exist.
    pub fn read_file(&self, path: &Path, max_bytes: usize) -> Result<Option<Vec<u8>>> {
        let handle = self.root.lookup(path)?;
        handle
            .map(|handle| file::read_regular_file(&handle, &self.procfs, path, max_bytes))
            .transpose()
    }

    /// Resolves `path` to a file that can be read and replaced. It is no error if the file does not
    /// exist.
    ///
    /// If `path` is a symbolic link, the result is the file to which the link leads. When the
    /// caller replaces this file, the link stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::NotWritable`] if the file is on a mount to which the hook may not write, or is
    /// itself a mount point; [`Error::DanglingSymlink`] if a link leads to a missing file;
    /// [`Error::WrongKind`] if the path is a directory.
    pub fn open_writable_file(&self, path: &Path) -> Result<WritableFile> {
        let ResolvedPath {
            mut opened_components,
            mut missing_names,
            ..
        } = self.resolve_for_creation(path)?;
        let (name, existing_file) = match (missing_names.pop(), opened_components.pop()) {
            (Some(name), directory) => {
                opened_components.extend(directory);
                (name, None)
            }
            (None, Some(file)) => (file.name, Some(file.handle)),
            (None, None) => {
                return Err(Error::WrongKind {
                    path: path.to_owned(),
                    found_kind: FileKind::Directory,
                    expected_kind: FileKind::Regular,
                });
            }
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = Directory::new(self.open_last_file(opened_components)?.into_fd(), parent);
        match self.policy.to_writable_directory(&self.root, directory)? {
            Ok(directory) => WritableFile::new(directory, missing_names, name, existing_file),
            Err((_, not_writable_reason)) => Err(not_writable_reason.into_error(path)),
        }
    }

    fn open_or_create_directory(&self, path: &Path, mode: Mode) -> Result<Parent> {
        // The whole path is opened first, because most directories exist. In that case, a single
        // openat2(2) is enough.
        let flags = HANDLE_FLAGS | OFlag::O_DIRECTORY;
        let (handle, missing_names) = match self.root.open_file(path, flags) {
            Ok(Some(fd)) => {
                return self.create_missing_directories(Directory::new(fd, path), &[], path, mode);
            }
            Ok(None) => {
                let ResolvedPath {
                    opened_components,
                    missing_names,
                    ..
                } = self.resolve_for_creation(path)?;
                (self.open_last_file(opened_components)?, missing_names)
            }
            // ENOTDIR means that `path` or one of its parents is not a directory. The lookup
            // distinguishes the two cases, because it succeeds only if all parents are directories.
            Err(error) => (self.root.lookup(path)?.ok_or(error)?, Vec::new()),
        };
        if handle.kind() != FileKind::Directory {
            return Err(Error::WrongKind {
                path: path.to_owned(),
                found_kind: handle.kind(),
                expected_kind: FileKind::Directory,
            });
        }
        let existing_path = path.ancestors().nth(missing_names.len()).unwrap_or(path);
        let directory = Directory::new(handle.into_fd(), existing_path);
        self.create_missing_directories(directory, &missing_names, path, mode)
    }

    /// Creates the nested directories `missing_names` in `directory` if the hook may write there.
    /// Returns the innermost directory, whose path is `path`.
    fn create_missing_directories(
        &self,
        directory: Directory,
        missing_names: &[OsString],
        path: &Path,
        mode: Mode,
    ) -> Result<Parent> {
        match self.policy.to_writable_directory(&self.root, directory)? {
            Ok(directory) => Ok(Parent::Writable(
                directory.create_dirs(missing_names, mode)?,
            )),
            Err((_, not_writable_reason)) if !missing_names.is_empty() => {
                Err(not_writable_reason.into_error(path))
            }
            Err((directory, not_writable_reason)) => {
                Ok(Parent::Protected(directory, not_writable_reason))
            }
        }
    }

    /// Resolves `path` as far as its components exist. The result lists the names of the missing
    /// components, so that the caller can create them. Fails if a symbolic link leads to a missing
    /// file, or if `..` follows a missing component.
    fn resolve_for_creation(&self, path: &Path) -> Result<ResolvedPath> {
        let resolved_path =
            Walk::new(self.root.as_fd(), path, TrailingSymlink::Follow)?.finish()?;
        match resolved_path.missing_names.first() {
            Some(missing_name) if resolved_path.is_dangling => Err(Error::DanglingSymlink {
                path: path.to_owned(),
                missing_path: missing_name.into(),
            }),
            Some(_) if resolved_path.missing_names.iter().any(|name| name == "..") => {
                Err(Error::system("open", path, Errno::ENOENT))
            }
            _ => Ok(resolved_path),
        }
    }

    /// Returns the handle on the last existing component of a path. `opened_components` contains
    /// the files of all existing components, in order. If the list is empty, returns a handle on
    /// the root directory.
    fn open_last_file(&self, mut opened_components: Vec<OpenedComponent>) -> Result<Handle> {
        match opened_components.pop() {
            Some(component) => Ok(component.handle),
            None => Ok(self.root.handle()?),
        }
    }
}
