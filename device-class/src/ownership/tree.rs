//! Finds the files of a host that containers get. The checks of their owners are weaker than for
//! files that decide what runs as root.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{AtFlags, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstatat};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};
use rooted_path::{
    FileKind, HANDLE, HANDLE_NOFOLLOW, Handle, Identity, MAX_LINKS, Resolver, RootDir,
    is_root_or_this_user,
};

use super::{GROUP_OR_OTHERS_WRITE, LocatedFile, OwnershipError, is_on_read_only_mount, mode};

const OTHERS_WRITE: u32 = 0o002;

/// A tree of the host in which files for containers are found, by these rules:
///
/// - No directory on the way may be one in which every user of the host can create
///   files, such as /tmp, with the sticky bit or without: any of them can be the first
///   to create what is under it.
/// - Other owners of files and directories are accepted, because only root can have made them
///   owners. But a symbolic link is followed only if the link and its directory belong to root, and
///   a file with several names is accepted only in a directory that belongs to root. Otherwise the
///   owner could give a container a file of somebody else.
///
/// Each directory is looked up once: an existing one is opened and checked, and a missing one is
/// remembered, because classes name many paths in directories that only other distributions have.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    directories: RefCell<HashMap<PathBuf, DirectoryLookup>>,
}

/// The result of looking up a directory.
#[derive(Debug, Clone)]
enum DirectoryLookup {
    Found(Arc<LocatedFile>),
    /// The file at this path does not exist: the directory, or one above it.
    Missing(PathBuf),
}

impl DirectoryLookup {
    fn into_result(self) -> Result<Arc<LocatedFile>, OwnershipError> {
        match self {
            Self::Found(directory) => Ok(directory),
            Self::Missing(path) => Err(OwnershipError::open(&path, nix::Error::ENOENT)),
        }
    }
}

/// A file that was found in a [`Tree`].
#[derive(Debug)]
pub struct TreeFile {
    /// The directory of the file; `None` for the root of the tree.
    parent: Option<Arc<LocatedFile>>,
    /// The path of the file without links. It begins with the path of the tree's root.
    pub path: PathBuf,
    pub stat: FileStat,
    /// Whether users other than root can put another file there.
    pub is_of_others: bool,
}

impl TreeFile {
    /// Opens a handle on the file.
    ///
    /// # Errors
    /// The file cannot be opened, or was replaced after it was found.
    pub fn open(&self) -> Result<Handle, OwnershipError> {
        let failed = |error| OwnershipError::open(&self.path, error);
        let file = match (&self.parent, self.path.file_name()) {
            (Some(parent), Some(name)) => {
                openat(&parent.handle, name, HANDLE_NOFOLLOW, Mode::empty())
            }
            _ => open(&self.path, HANDLE, Mode::empty()),
        };
        let handle = Handle::new(file.map_err(failed)?, &self.path)
            .map_err(|error| OwnershipError::failed(&self.path, error))?;
        if handle.identity() == Identity::from_stat(&self.stat) {
            Ok(handle)
        } else {
            let error = io::Error::other("it was replaced while it was in use");
            Err(OwnershipError::open(&self.path, error))
        }
    }
}

impl Tree {
    /// Creates the view of the tree at `root`, which must be a path without links.
    pub fn new(root: &Path) -> Self {
        Tree {
            root: root.into(),
            directories: RefCell::default(),
        }
    }

    /// Finds the file at `path`. Links are followed inside the tree.
    ///
    /// # Errors
    /// Users other than root can decide which file is there, or its metadata cannot be read.
    pub fn find(&self, path: &Path) -> Result<TreeFile, OwnershipError> {
        let found = self.follow(path, &mut 0)?;
        let TreeFile { path, stat, .. } = &found;
        if found.is_of_others && FileKind::from_stat(stat) == FileKind::Regular && stat.st_nlink > 1
        {
            return Err(OwnershipError::Names { path: path.clone() });
        }
        Ok(found)
    }

    fn follow(&self, path: &Path, links: &mut usize) -> Result<TreeFile, OwnershipError> {
        let above = path.parent().unwrap_or(Path::new("/"));
        let name = match path.components().next_back() {
            Some(Component::Normal(name)) => name,
            Some(Component::ParentDir) => {
                let directory = self.directory(above, links)?;
                let above = self.inside(&directory.path);
                return self.follow(above.parent().unwrap_or(Path::new("/")), links);
            }
            _ => {
                let top = self.open_root()?;
                return Ok(TreeFile {
                    parent: None,
                    path: top.path.clone(),
                    stat: *top.handle.stat(),
                    is_of_others: false,
                });
            }
        };
        let parent = self.directory(above, links)?;
        let mode = mode(&parent.handle);
        if mode & OTHERS_WRITE != 0 && !is_on_read_only_mount(&parent.handle) {
            let path = parent.path.clone();
            return Err(OwnershipError::Shared { path, mode });
        }
        let path = parent.path.join(name);
        let stat = fstatat(&parent.handle, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|error| OwnershipError::open(&path, error))?;
        let is_of_others = !can_only_root_change(&parent.handle);
        if FileKind::from_stat(&stat) != FileKind::Symlink {
            return Ok(TreeFile {
                parent: Some(parent),
                path,
                stat,
                is_of_others,
            });
        }
        // Root alone can replace the link between the two calls.
        if !is_root_or_this_user(stat.st_uid)
            || is_of_others
            || self.may_be_on_fuse(&stat, &parent)?
        {
            return Err(OwnershipError::Link { path });
        }
        *links += 1;
        if *links > MAX_LINKS {
            return Err(OwnershipError::open(&path, nix::Error::ELOOP));
        }
        let target =
            readlinkat(&parent.handle, name).map_err(|error| OwnershipError::open(&path, error))?;
        self.follow(&self.inside(&parent.path).join(target), links)
    }

    fn directory(
        &self,
        path: &Path,
        links: &mut usize,
    ) -> Result<Arc<LocatedFile>, OwnershipError> {
        if let Some(known) = self.directories.borrow().get(path) {
            return known.clone().into_result();
        }
        let lookup = match self.open_directory(path, links) {
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
        links: &mut usize,
    ) -> Result<Arc<LocatedFile>, OwnershipError> {
        let found = self.follow(path, links)?;
        match found.parent {
            None => self.open_root(),
            Some(_) => Ok(Arc::new(LocatedFile {
                handle: found.open()?,
                path: found.path,
            })),
        }
    }

    fn open_root(&self) -> Result<Arc<LocatedFile>, OwnershipError> {
        if let Some(top) = self.directories.borrow().get(Path::new("/")) {
            return top.clone().into_result();
        }
        let opened = RootDir::open(&self.root, Resolver::Walk);
        let handle = opened.and_then(|top| top.into_handle(&self.root));
        let handle = handle.map_err(|error| OwnershipError::open(&self.root, error))?;
        let path = self.root.clone();
        Ok(Arc::new(LocatedFile { handle, path }))
    }

    /// Converts the path of a found file to the path inside the tree.
    fn inside(&self, found: &Path) -> PathBuf {
        Path::new("/").join(found.strip_prefix(&self.root).unwrap_or(found))
    }

    /// Returns whether the link may be in a FUSE file system that is mounted in the tree. The owner
    /// of such a link proves nothing, because the FUSE server of a user can report any owner.
    fn may_be_on_fuse(
        &self,
        link: &FileStat,
        parent: &LocatedFile,
    ) -> Result<bool, OwnershipError> {
        if link.st_dev == self.open_root()?.handle.stat().st_dev {
            return Ok(false);
        }
        // A link is in the same file system as its directory, since nothing can be mounted on a
        // link.
        let fs = fstatfs(&parent.handle);
        Ok(fs.is_ok_and(|fs| fs.filesystem_type() == FUSE_SUPER_MAGIC))
    }
}

/// Returns whether root alone can create and replace names in a directory.
fn can_only_root_change(directory: &Handle) -> bool {
    let is_writable = mode(directory) & GROUP_OR_OTHERS_WRITE != 0;
    is_root_or_this_user(directory.stat().st_uid)
        && (!is_writable || is_on_read_only_mount(directory))
}
