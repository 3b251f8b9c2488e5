//! What containers get of a tree of the host.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{openat, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};
use rooted_path::{FileKind, HANDLE_NOFOLLOW, Handle, MAX_LINKS, Resolver, RootDir};

use super::{GROUP_OR_OTHERS_WRITE, Located, OwnershipError, is_on_read_only_mount, is_ours, mode};

const OTHERS_WRITE: u32 = 0o002;

/// Finds what containers get in a tree of the host.
///
/// - No directory on the way may be one in which every user of the host can create
///   files, such as /tmp, with the sticky bit or without: any of them can be the first
///   to create what is under it.
/// - Other owners of files and directories do not matter, because it was root who gave
///   them away. But their files have to be their own: a symbolic link counts only if it
///   and its directory are root's, and a file with several names only in a directory of
///   root's.
///
/// Each directory is opened and checked once.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    directories: RefCell<HashMap<PathBuf, Arc<Located>>>,
}

#[derive(Debug)]
pub struct InTree {
    found: Arc<Located>,
    /// Whether others than root can put something else there.
    pub is_of_others: bool,
}

impl InTree {
    /// Its path without links, below that of the tree's root.
    pub fn path(&self) -> &Path {
        &self.found.path
    }

    pub fn handle(&self) -> &Handle {
        &self.found.handle
    }
}

/// Where a path leads: the file, and the directory that it is in.
type End = (Arc<Located>, Option<Arc<Located>>);

impl Tree {
    /// The tree at `root`, a path without links.
    pub fn new(root: &Path) -> Self {
        Tree {
            root: root.into(),
            directories: RefCell::default(),
        }
    }

    /// What is at `path`, with links followed in the tree.
    ///
    /// # Errors
    /// Others than root can decide what is there, or it cannot be opened.
    pub fn find(&self, path: &Path) -> Result<InTree, OwnershipError> {
        let (found, parent) = self.follow(path, &mut 0)?;
        let is_of_others = parent.is_some_and(|parent| !is_roots(&parent.handle));
        let handle = &found.handle;
        if is_of_others && handle.kind() == FileKind::Regular && handle.stat().st_nlink > 1 {
            let path = found.path.clone();
            return Err(OwnershipError::Names { path });
        }
        Ok(InTree {
            found,
            is_of_others,
        })
    }

    fn follow(&self, path: &Path, links: &mut usize) -> Result<End, OwnershipError> {
        let above = path.parent().unwrap_or(Path::new("/"));
        let name = match path.components().next_back() {
            Some(Component::Normal(name)) => name,
            Some(Component::ParentDir) => {
                let directory = self.directory(above, links)?;
                let above = self.inside(&directory.path);
                return self.follow(above.parent().unwrap_or(Path::new("/")), links);
            }
            _ => return Ok((self.top()?, None)),
        };
        let parent = self.directory(above, links)?;
        let mode = mode(&parent.handle);
        if mode & OTHERS_WRITE != 0 && !is_on_read_only_mount(&parent.handle) {
            let path = parent.path.clone();
            return Err(OwnershipError::Shared { path, mode });
        }
        let path = parent.path.join(name);
        let file = openat(&parent.handle, name, HANDLE_NOFOLLOW, Mode::empty())
            .map_err(|error| OwnershipError::open(&path, error))?;
        let handle = Handle::new(file, &path);
        let handle = handle.map_err(|error| OwnershipError::failed(&path, error))?;
        if handle.kind() != FileKind::Symlink {
            return Ok((Arc::new(Located { handle, path }), Some(parent)));
        }
        if !is_ours(handle.stat().st_uid)
            || !is_roots(&parent.handle)
            || self.is_claimed(&handle)?
        {
            return Err(OwnershipError::Link { path });
        }
        *links += 1;
        if *links > MAX_LINKS {
            return Err(OwnershipError::open(&path, nix::Error::ELOOP));
        }
        let target = readlinkat(&handle, "").map_err(|error| OwnershipError::open(&path, error))?;
        self.follow(&self.inside(&parent.path).join(target), links)
    }

    fn directory(&self, path: &Path, links: &mut usize) -> Result<Arc<Located>, OwnershipError> {
        if let Some(found) = self.directories.borrow().get(path) {
            return Ok(Arc::clone(found));
        }
        let (found, _) = self.follow(path, links)?;
        let mut directories = self.directories.borrow_mut();
        directories.insert(path.into(), Arc::clone(&found));
        Ok(found)
    }

    fn top(&self) -> Result<Arc<Located>, OwnershipError> {
        if let Some(top) = self.directories.borrow().get(Path::new("/")) {
            return Ok(Arc::clone(top));
        }
        let opened = RootDir::open(&self.root, Resolver::Walk);
        let handle = opened.and_then(|top| top.into_handle(&self.root));
        let handle = handle.map_err(|error| OwnershipError::open(&self.root, error))?;
        let path = self.root.clone();
        Ok(Arc::new(Located { handle, path }))
    }

    /// The path in the tree of something that was found.
    fn inside(&self, found: &Path) -> PathBuf {
        Path::new("/").join(found.strip_prefix(&self.root).unwrap_or(found))
    }

    /// Whether a user's program, which can claim any owner for its files, may provide
    /// this one: a FUSE server below the tree's root.
    fn is_claimed(&self, file: &Handle) -> Result<bool, OwnershipError> {
        if file.stat().st_dev == self.top()?.handle.stat().st_dev {
            return Ok(false);
        }
        Ok(fstatfs(file).is_ok_and(|fs| fs.filesystem_type() == FUSE_SUPER_MAGIC))
    }
}

/// Whether root alone can create and replace names in a directory.
fn is_roots(directory: &Handle) -> bool {
    let is_writable = mode(directory) & GROUP_OR_OTHERS_WRITE != 0;
    is_ours(directory.stat().st_uid) && (!is_writable || is_on_read_only_mount(directory))
}
