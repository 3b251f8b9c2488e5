//! Resolves paths below a root directory, one name at a time.
//!
//! Each step opens one name with `O_NOFOLLOW`, relative to the handle of its directory. The target
//! of a symbolic link is resolved in the same way. An absolute target starts at the root.
//!
//! For `..`, the walk returns to its previous handle. It does not ask the kernel for the parent
//! directory, because another process may move the directory at the same time. Only handles below
//! the root are used, so no file outside of the root can be reached.
//!
//! The walk differs from `openat2` in one point. `openat2` refuses only the magic links of a proc
//! file system, but the walk refuses all its symbolic links, because only the kernel can
//! distinguish the two kinds.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{openat, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use crate::rooted_path::handle::HANDLE_NOFOLLOW_FLAGS;
use crate::rooted_path::path::{Component, MAX_COMPONENTS, check_path, split_components};
use crate::rooted_path::{Error, FileKind, Handle, Result};

/// The maximum number of symbolic links that one walk follows. The kernel has the same limit
/// (path_resolution(7)).
pub const MAX_LINKS: usize = 40;

/// Whether a walk follows a symbolic link at the end of the path. `NoFollow` has the meaning of
/// `O_NOFOLLOW` in open(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrailingSymlink {
    /// The walk follows the link and ends at its target.
    Follow,
    /// The walk ends at the link itself.
    NoFollow,
}

/// A component of the path that a walk has opened: a handle on the file, and the name of the file
/// in its parent directory.
#[derive(Debug)]
pub struct OpenedComponent {
    pub name: OsString,
    pub handle: Handle,
}

/// Returns the path of the last file in `components`. `root` is the path of the root directory. The
/// result is for messages, and for system calls that do not accept a handle.
pub fn join_component_names(root: &Path, components: &[OpenedComponent]) -> PathBuf {
    let names = components
        .iter()
        .map(|component| component.name.as_os_str());
    [root.as_os_str()].into_iter().chain(names).collect()
}

/// One step of a walk, which has opened one file. The file is a directory, a symbolic link that the
/// next step follows, or the file at the end of the path.
#[derive(Debug)]
pub struct WalkStep<'a> {
    /// The directories on the way to the file. The root directory is not in the list.
    pub parents: &'a [OpenedComponent],
    /// The opened file.
    pub file: &'a OpenedComponent,
}

impl WalkStep<'_> {
    /// Returns the path of the opened file. `root` is the path of the root directory.
    pub fn path(&self, root: &Path) -> PathBuf {
        join_component_names(root, self.parents).join(&self.file.name)
    }
}

/// The result of a complete walk: the files on the path that exist, and the names that do not
/// exist.
#[derive(Debug)]
pub struct ResolvedPath {
    /// The files on the path. All but the last one are directories. The root directory is not in
    /// the list, so the list is empty if the path leads to the root directory.
    pub opened_components: Vec<OpenedComponent>,
    /// The end of the path, which does not exist: the first missing name and all components after
    /// it, including `..`. The list is empty if the path exists.
    pub missing_names: Vec<OsString>,
    /// Whether the first missing name comes from the target of a symbolic link, and not from the
    /// path that was looked up.
    pub is_dangling: bool,
}

/// Resolves one path, one component at a time. After each step, the caller can check the opened
/// file before the walk opens a file below it.
#[derive(Debug)]
pub struct Walk<'a> {
    root_fd: BorrowedFd<'a>,
    path: &'a Path,
    trailing_symlink: TrailingSymlink,
    opened_components: Vec<OpenedComponent>,
    /// The file that the last step opened. If it is a directory, the next step enters it. If it is
    /// a symbolic link, the next step follows it.
    opened_file: Option<OpenedComponent>,
    pending_components: VecDeque<PendingComponent>,
    link_count: usize,
    missing_names: Vec<OsString>,
    is_dangling: bool,
}

/// A component of the path that the walk has not resolved yet.
#[derive(Debug)]
enum PendingComponent {
    Current,
    Parent,
    Name {
        name: OsString,
        /// Whether the name comes from the target of a symbolic link, and not from the path that is
        /// looked up.
        is_from_link: bool,
    },
}

impl<'a> Walk<'a> {
    /// Creates the walk for `path`. The walk starts at the directory `root_fd`, even if the path is
    /// absolute.
    pub fn new(
        root_fd: BorrowedFd<'a>,
        path: &'a Path,
        trailing_symlink: TrailingSymlink,
    ) -> Result<Self> {
        check_path(path)?;
        let mut walk = Self {
            root_fd,
            path,
            trailing_symlink,
            opened_components: Vec::new(),
            opened_file: None,
            pending_components: VecDeque::new(),
            link_count: 0,
            missing_names: Vec::new(),
            is_dangling: false,
        };
        walk.push_components_front(path.as_os_str(), false);
        Ok(walk)
    }

    /// Opens the next file on the path. Returns `None` at the end of the path. Also returns `None`
    /// if the next name does not exist, or if the path ends in a symbolic link that is not
    /// followed.
    pub fn step(&mut self) -> Result<Option<WalkStep<'_>>> {
        if let Some(file) = self.opened_file.take() {
            self.append_or_follow(file)?;
        }
        let Some((name, is_from_link)) = self.take_next_name()? else {
            return Ok(None);
        };
        let handle = match openat(
            self.current_dir_fd(),
            &*name,
            HANDLE_NOFOLLOW_FLAGS,
            Mode::empty(),
        ) {
            Ok(fd) => Handle::new(fd, self.path)?,
            Err(Errno::ENOENT) => {
                self.stop_at_missing_name(name);
                self.is_dangling = is_from_link;
                return Ok(None);
            }
            Err(errno) => return Err(self.system_error("open", errno)),
        };
        let is_last_link = handle.kind() == FileKind::Symlink && self.pending_components.is_empty();
        let file = OpenedComponent { name, handle };
        if is_last_link && self.trailing_symlink == TrailingSymlink::NoFollow {
            self.opened_components.push(file);
            return Ok(None);
        }
        let file = self.opened_file.insert(file);
        Ok(Some(WalkStep {
            parents: &self.opened_components,
            file,
        }))
    }

    /// Takes all steps that are left, and returns the resolved path.
    pub fn finish(mut self) -> Result<ResolvedPath> {
        while self.step()?.is_some() {}
        Ok(ResolvedPath {
            opened_components: self.opened_components,
            missing_names: self.missing_names,
            is_dangling: self.is_dangling,
        })
    }

    /// Puts the components of `path` before all other components that are not resolved yet.
    fn push_components_front(&mut self, path: &OsStr, is_from_link: bool) {
        for component in split_components(path).rev() {
            self.pending_components.push_front(match component {
                Component::Current => PendingComponent::Current,
                Component::Parent => PendingComponent::Parent,
                Component::Name(name) => PendingComponent::Name {
                    name: name.as_os_str().to_owned(),
                    is_from_link,
                },
            });
        }
    }

    /// Returns the descriptor of the directory in which the next name is opened.
    fn current_dir_fd(&self) -> BorrowedFd<'_> {
        let last_directory = self.opened_components.last();
        last_directory.map_or(self.root_fd, |component| component.handle.as_fd())
    }

    /// Removes the pending components up to and including the next name. Returns this name, and
    /// whether it comes from the target of a symbolic link. Returns `None` if no name is pending.
    fn take_next_name(&mut self) -> Result<Option<(OsString, bool)>> {
        while let Some(component) = self.pending_components.pop_front() {
            if let Some(component) = self.opened_components.last()
                && component.handle.kind() != FileKind::Directory
            {
                return Err(self.system_error("open", Errno::ENOTDIR));
            }
            match component {
                PendingComponent::Name { name, is_from_link } => {
                    return Ok(Some((name, is_from_link)));
                }
                PendingComponent::Current => {}
                // At the root directory the list is empty. There `..` leads to the root directory
                // itself, as in the kernel.
                PendingComponent::Parent => drop(self.opened_components.pop()),
            }
        }
        Ok(None)
    }

    /// Ends the walk at `first_name`, which does not exist. All components after it are missing as
    /// well.
    fn stop_at_missing_name(&mut self, first_name: OsString) {
        self.missing_names.push(first_name);
        let remaining_names =
            self.pending_components
                .drain(..)
                .filter_map(|component| match component {
                    PendingComponent::Name { name, .. } => Some(name),
                    PendingComponent::Parent => Some("..".into()),
                    PendingComponent::Current => None,
                });
        self.missing_names.extend(remaining_names);
    }

    /// Appends an opened file to `opened_components`. If the file is a symbolic link, follows it
    /// instead: the next steps resolve the components of its target.
    fn append_or_follow(&mut self, file: OpenedComponent) -> Result<()> {
        let handle = &file.handle;
        if handle.kind() != FileKind::Symlink {
            if self.opened_components.len() == MAX_COMPONENTS {
                return Err(self.system_error("open", Errno::ENAMETOOLONG));
            }
            self.opened_components.push(file);
            return Ok(());
        }
        let file_system = fstatfs(handle).map_err(|errno| self.system_error("open", errno))?;
        self.link_count += 1;
        if self.link_count > MAX_LINKS || file_system.filesystem_type() == PROC_SUPER_MAGIC {
            return Err(Error::too_many_links(self.path));
        }
        let target =
            readlinkat(handle, "").map_err(|errno| self.system_error("read link", errno))?;
        if target.is_empty() {
            return Err(self.system_error("open", Errno::ENOENT));
        }
        if Path::new(&target).is_absolute() {
            self.opened_components.clear();
        }
        self.push_components_front(&target, true);
        Ok(())
    }

    fn system_error(&self, action: &'static str, errno: Errno) -> Error {
        Error::system(action, self.path, errno)
    }
}
