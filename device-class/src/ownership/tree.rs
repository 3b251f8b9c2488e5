//! Finds host files for containers. The checks of who owns a file are weaker here than for class
//! files and config.toml, which decide what runs as root.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use host_files::rooted_path::{
    FileKind, HANDLE_NOFOLLOW_FLAGS, Handle, Identity, MAX_LINKS, RegularFile, Resolver, RootDir,
    is_root_or_this_user,
};
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstatat};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};

use super::{
    GROUP_OR_OTHERS_WRITE_MODE, LocatedFile, OwnershipError, check_regular_kind,
    is_on_read_only_mount, mode_bits, open_again,
};

const OTHERS_WRITE_MODE: u32 = 0o002;

/// Finds files of a host for containers, by these rules:
///
/// - A path is refused if it leads through a directory in which every user of the host can create
///   files, such as /tmp. This holds even if the directory has the sticky bit, because any user can
///   be the first to create the file at the path.
/// - Files and directories may belong to users other than root, because only root can have changed
///   the owner. But a symbolic link is followed only if the link and its directory belong to root,
///   and a file with several hard links is accepted only in a directory that belongs to root.
///   Otherwise the owner of the directory could give a container a file of another user.
///
/// Each directory is looked up only once. An existing directory stays open, and a missing one is
/// remembered, because classes name many paths in directories that exist only on other
/// distributions.
#[derive(Debug)]
pub struct TrustedTree {
    root: PathBuf,
    directories: RefCell<HashMap<PathBuf, DirectoryLookup>>,
}

/// The result of looking up a directory. A [`TrustedTree`] keeps it for later look-ups in the
/// directory.
#[derive(Debug, Clone)]
enum DirectoryLookup {
    Found(Arc<LocatedFile>),
    /// The directory does not exist. The path is that of the first missing directory: this
    /// directory, or one above it.
    Missing(PathBuf),
}

impl DirectoryLookup {
    fn into_result(self) -> Result<Arc<LocatedFile>, OwnershipError> {
        match self {
            Self::Found(directory) => Ok(directory),
            Self::Missing(path) => Err(OwnershipError::from_open_error(&path, nix::Error::ENOENT)),
        }
    }
}

/// A file that was found in a [`TrustedTree`]. It is not open yet.
#[derive(Debug)]
pub struct TreeFile {
    /// The directory that contains the file. `None` for the root of the tree.
    parent: Option<Arc<LocatedFile>>,
    /// The path of the file, with symbolic links resolved. It begins with the path of the tree's
    /// root.
    pub path: PathBuf,
    pub stat: FileStat,
    /// Whether users other than root can replace the file with another one, because they can change
    /// its directory.
    pub can_others_replace: bool,
}

impl TreeFile {
    /// Opens a handle to the file.
    ///
    /// # Errors
    /// The file cannot be opened, or was replaced after it was found.
    pub fn open(&self) -> Result<Handle, OwnershipError> {
        self.open_with_flags(HANDLE_NOFOLLOW_FLAGS)
    }

    /// Opens a regular file for reading. Other files are not opened, because opening a device or a
    /// pipe can have side effects.
    ///
    /// # Errors
    /// The file is not a regular file, cannot be opened, or was replaced after it was found.
    pub fn open_for_reading(&self) -> Result<RegularFile, OwnershipError> {
        check_regular_kind(FileKind::from_stat(&self.stat), &self.path)?;
        let reading_flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        if self.can_others_replace {
            // Another user may have replaced the file by a device. So the file is opened without
            // access and compared, before it is opened for reading.
            return open_again(&self.open()?, reading_flags, &self.path);
        }
        let file = self.open_with_flags(reading_flags | OFlag::O_NOFOLLOW)?;
        let stat = *file.stat();
        Ok(RegularFile::new(file.into_fd().into(), &stat))
    }

    fn open_with_flags(&self, flags: OFlag) -> Result<Handle, OwnershipError> {
        let to_error = |error| OwnershipError::from_open_error(&self.path, error);
        let file = match (&self.parent, self.path.file_name()) {
            (Some(parent), Some(name)) => openat(&parent.handle, name, flags, Mode::empty()),
            _ => open(&self.path, flags, Mode::empty()),
        };
        let handle = Handle::new(file.map_err(to_error)?, &self.path)
            .map_err(|error| OwnershipError::from_walk_error(&self.path, error))?;
        if handle.identity() == Identity::from_stat(&self.stat) {
            Ok(handle)
        } else {
            let error = io::Error::other("it was replaced while it was in use");
            Err(OwnershipError::from_open_error(&self.path, error))
        }
    }
}

impl TrustedTree {
    /// Creates a tree whose root is `root`, a path without symbolic links.
    pub fn new(root: &Path) -> Self {
        TrustedTree {
            root: root.into(),
            directories: RefCell::default(),
        }
    }

    /// Finds the file at `path`. Symbolic links are followed inside the tree.
    ///
    /// # Errors
    /// Users other than root can decide which file is at the path, or its metadata cannot be read.
    pub fn find_file(&self, path: &Path) -> Result<TreeFile, OwnershipError> {
        let file = self.resolve_path(path, &mut 0)?;
        let TreeFile { path, stat, .. } = &file;
        if file.can_others_replace
            && FileKind::from_stat(stat) == FileKind::Regular
            && stat.st_nlink > 1
        {
            return Err(OwnershipError::HardLinks { path: path.clone() });
        }
        Ok(file)
    }

    /// Looks up a file and follows symbolic links. `link_count` is the number of links that have
    /// been followed so far.
    fn resolve_path(
        &self,
        path: &Path,
        link_count: &mut usize,
    ) -> Result<TreeFile, OwnershipError> {
        let Some((parent, name)) = self.find_parent(path, link_count)? else {
            let root = self.open_root()?;
            return Ok(TreeFile {
                parent: None,
                path: root.path.clone(),
                stat: *root.handle.stat(),
                can_others_replace: false,
            });
        };
        let path = parent.path.join(&name);
        let stat = fstatat(&parent.handle, &*name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|error| OwnershipError::from_open_error(&path, error))?;
        if FileKind::from_stat(&stat) == FileKind::Symlink {
            let target = self.read_trusted_link(&parent, &path, &stat, link_count)?;
            return self.resolve_path(&target, link_count);
        }
        let can_others_replace = !can_only_root_change(&parent.handle);
        Ok(TreeFile {
            parent: Some(parent),
            path,
            stat,
            can_others_replace,
        })
    }

    /// Returns the directory that contains the file at `path`, and the name of the file in it.
    /// Returns `None` for the root of the tree. Fails if every user of the host can create files in
    /// the directory.
    fn find_parent(
        &self,
        path: &Path,
        link_count: &mut usize,
    ) -> Result<Option<(Arc<LocatedFile>, OsString)>, OwnershipError> {
        let parent_path = path.parent().unwrap_or(Path::new("/"));
        let name = match path.components().next_back() {
            Some(Component::Normal(name)) => name,
            Some(Component::ParentDir) => {
                let directory = self.find_directory(parent_path, link_count)?;
                let directory_path = self.path_in_tree(&directory.path);
                let path = directory_path.parent().unwrap_or(Path::new("/"));
                return self.find_parent(path, link_count);
            }
            _ => return Ok(None),
        };
        let parent = self.find_directory(parent_path, link_count)?;
        let mode = mode_bits(&parent.handle);
        if mode & OTHERS_WRITE_MODE != 0 && !is_on_read_only_mount(&parent.handle) {
            let path = parent.path.clone();
            return Err(OwnershipError::WorldWritable { path, mode });
        }
        Ok(Some((parent, name.to_owned())))
    }

    /// Returns the path in the tree to which a symbolic link leads. The link is at `path`, in the
    /// directory `parent`. Fails if users other than root can replace the link, because they could
    /// do so between this check and `readlinkat`.
    fn read_trusted_link(
        &self,
        parent: &LocatedFile,
        path: &Path,
        stat: &FileStat,
        link_count: &mut usize,
    ) -> Result<PathBuf, OwnershipError> {
        if !is_root_or_this_user(stat.st_uid)
            || !can_only_root_change(&parent.handle)
            || self.may_be_on_fuse(stat, parent)?
        {
            return Err(OwnershipError::ReplaceableLink { path: path.into() });
        }
        *link_count += 1;
        if *link_count > MAX_LINKS {
            return Err(OwnershipError::from_open_error(path, nix::Error::ELOOP));
        }
        let name = path.file_name().unwrap_or_default();
        let target = readlinkat(&parent.handle, name)
            .map_err(|error| OwnershipError::from_open_error(path, error))?;
        Ok(self.path_in_tree(&parent.path).join(target))
    }

    fn find_directory(
        &self,
        path: &Path,
        link_count: &mut usize,
    ) -> Result<Arc<LocatedFile>, OwnershipError> {
        if let Some(lookup) = self.directories.borrow().get(path) {
            return lookup.clone().into_result();
        }
        let lookup = match self.open_directory(path, link_count) {
            Ok(directory) => DirectoryLookup::Found(directory),
            Err(OwnershipError::Open { path, error }) if error.kind() == ErrorKind::NotFound => {
                DirectoryLookup::Missing(path)
            }
            Err(error) => return Err(error),
        };
        let mut directories = self.directories.borrow_mut();
        directories.insert(path.into(), lookup.clone());
        lookup.into_result()
    }

    fn open_directory(
        &self,
        path: &Path,
        link_count: &mut usize,
    ) -> Result<Arc<LocatedFile>, OwnershipError> {
        let Some((parent, name)) = self.find_parent(path, link_count)? else {
            return self.open_root();
        };
        let path = parent.path.join(&name);
        let handle = openat(&parent.handle, &*name, HANDLE_NOFOLLOW_FLAGS, Mode::empty())
            .map_err(|error| OwnershipError::from_open_error(&path, error))?;
        let handle = Handle::new(handle, &path)
            .map_err(|error| OwnershipError::from_walk_error(&path, error))?;
        if handle.kind() == FileKind::Symlink {
            let target = self.read_trusted_link(&parent, &path, handle.stat(), link_count)?;
            return self.find_directory(&target, link_count);
        }
        Ok(Arc::new(LocatedFile { handle, path }))
    }

    fn open_root(&self) -> Result<Arc<LocatedFile>, OwnershipError> {
        if let Some(lookup) = self.directories.borrow().get(Path::new("/")) {
            return lookup.clone().into_result();
        }
        let root_dir = RootDir::open(&self.root, Resolver::Walk);
        let handle = root_dir.and_then(|dir| dir.into_handle(&self.root));
        let handle = handle.map_err(|error| OwnershipError::from_open_error(&self.root, error))?;
        let path = self.root.clone();
        Ok(Arc::new(LocatedFile { handle, path }))
    }

    /// Converts a path on the host, which begins with the path of the tree's root, to a path inside
    /// the tree.
    fn path_in_tree(&self, full_path: &Path) -> PathBuf {
        let relative_path = full_path.strip_prefix(&self.root).unwrap_or(full_path);
        Path::new("/").join(relative_path)
    }

    /// Returns whether a symbolic link may be in a FUSE file system that is mounted in the tree.
    /// The owner of such a link cannot be trusted, because a user's FUSE server can report any
    /// owner.
    fn may_be_on_fuse(
        &self,
        link: &FileStat,
        parent: &LocatedFile,
    ) -> Result<bool, OwnershipError> {
        if link.st_dev == self.open_root()?.handle.stat().st_dev {
            return Ok(false);
        }
        // Nothing can be mounted on a symbolic link, so the link is in the same file system as its
        // directory.
        let file_system = fstatfs(&parent.handle);
        Ok(file_system.is_ok_and(|file_system| file_system.filesystem_type() == FUSE_SUPER_MAGIC))
    }
}

/// Returns whether only root, or the user of this process, can create and replace files in this
/// directory.
fn can_only_root_change(directory: &Handle) -> bool {
    let is_writable = mode_bits(directory) & GROUP_OR_OTHERS_WRITE_MODE != 0;
    is_root_or_this_user(directory.stat().st_uid)
        && (!is_writable || is_on_read_only_mount(directory))
}
