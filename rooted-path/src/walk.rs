//! Resolves paths below a root directory, one name at a time.
//!
//! Each step opens one name with `O_NOFOLLOW`, relative to the handle of its directory. The
//! target of a symbolic link is resolved in the same way, and starts at the root if it is
//! absolute. For `..`, the walk returns to its previous handle and does not ask the kernel for
//! the parent directory, because another process may move the directory at the same time. Only
//! handles below the root are used, so no file outside the root can be reached.
//!
//! The walk differs from `openat2` in one point: it refuses every symbolic link of a proc file
//! system, and not only magic links, because only the kernel can distinguish the two.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{openat, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use crate::handle::HANDLE_NOFOLLOW;
use crate::path::{Component, MAX_DEPTH, check, components};
use crate::{Error, FileKind, Handle, Result};

/// The maximum number of symbolic links that one walk follows. The kernel has the same limit
/// (path_resolution(7)).
pub const MAX_LINKS: usize = 40;

/// The treatment of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    /// The walk ends at the target of the link.
    Follow,
    /// The walk ends at the link itself.
    Keep,
}

/// A file that a walk has opened, and its name in its directory.
#[derive(Debug)]
pub struct Waypoint {
    pub name: OsString,
    pub handle: Handle,
}

/// Returns the path of the last file of `trail` for a root directory at `root`. The path is for
/// messages, and for system calls that do not accept a handle.
pub fn path_below(root: &Path, trail: &[Waypoint]) -> PathBuf {
    let names = trail.iter().map(|waypoint| waypoint.name.as_os_str());
    [root.as_os_str()].into_iter().chain(names).collect()
}

/// The file that one step of a walk has opened: a directory, a symbolic link that the next step
/// follows, or the file at the end of the path.
#[derive(Debug)]
pub struct Step<'a> {
    /// The directories above the file, from the child of the root down.
    pub above: &'a [Waypoint],
    pub found: &'a Waypoint,
}

impl Step<'_> {
    /// Returns the path of the file for a root directory at `root`.
    pub fn path(&self, root: &Path) -> PathBuf {
        path_below(root, self.above).join(&self.found.name)
    }
}

/// The result of a walk.
#[derive(Debug)]
pub struct ResolvedPath {
    /// The files from the child of the root down to the end of the path. All but the last one are
    /// directories. The list is empty if the path leads to the root itself.
    pub trail: Vec<Waypoint>,
    /// The rest of the path that does not exist below the last file of `trail`: the first missing
    /// name and all components after it, including `..`. The list is empty if the path exists.
    pub missing: Vec<OsString>,
    /// Whether the first missing name is part of a symbolic link's target, and not of the path
    /// that was looked up.
    pub is_dangling: bool,
}

/// The resolution of one path in steps. After each step the caller can check the file that was
/// opened, before the walk opens anything below it.
#[derive(Debug)]
pub struct Walk<'a> {
    root: BorrowedFd<'a>,
    path: &'a Path,
    last: LastLink,
    trail: Vec<Waypoint>,
    /// The file of the last step. The next step enters this directory or follows this link.
    found: Option<Waypoint>,
    pending: VecDeque<Pending>,
    /// The number of links that were followed.
    links: usize,
    missing: Vec<OsString>,
    is_dangling: bool,
}

/// A component of the path that the walk has not resolved yet.
#[derive(Debug)]
enum Pending {
    Current,
    Parent,
    Name {
        name: OsString,
        /// Whether the name is part of a link's target, and not of the path that is looked up.
        from_link: bool,
    },
}

impl<'a> Walk<'a> {
    /// Begins to resolve `path` below the directory `root`. An absolute and a relative path both
    /// start at `root`.
    pub fn new(root: BorrowedFd<'a>, path: &'a Path, last: LastLink) -> Result<Self> {
        check(path)?;
        let mut walk = Self {
            root,
            path,
            last,
            trail: Vec::new(),
            found: None,
            pending: VecDeque::new(),
            links: 0,
            missing: Vec::new(),
            is_dangling: false,
        };
        walk.push_front(path.as_os_str(), false);
        Ok(walk)
    }

    /// Opens the next file of the path. Returns `None` if the path has ended, if the next name
    /// does not exist, or if the path ends in a link that is not followed.
    pub fn step(&mut self) -> Result<Option<Step<'_>>> {
        if let Some(found) = self.found.take() {
            self.enter(found)?;
        }
        let Some((name, from_link)) = self.next_name()? else {
            return Ok(None);
        };
        let handle = match openat(self.current(), &*name, HANDLE_NOFOLLOW, Mode::empty()) {
            Ok(fd) => Handle::new(fd, self.path)?,
            Err(Errno::ENOENT) => {
                self.end_at_missing(name);
                self.is_dangling = from_link;
                return Ok(None);
            }
            Err(errno) => return Err(self.system("open", errno)),
        };
        let is_last_link = handle.kind() == FileKind::Symlink && self.pending.is_empty();
        let found = Waypoint { name, handle };
        if is_last_link && self.last == LastLink::Keep {
            self.trail.push(found);
            return Ok(None);
        }
        let found = self.found.insert(found);
        Ok(Some(Step {
            above: &self.trail,
            found,
        }))
    }

    /// Takes all steps that are left.
    pub fn finish(mut self) -> Result<ResolvedPath> {
        while self.step()?.is_some() {}
        Ok(ResolvedPath {
            trail: self.trail,
            missing: self.missing,
            is_dangling: self.is_dangling,
        })
    }

    /// Inserts the components of `path` before the pending ones.
    fn push_front(&mut self, path: &OsStr, from_link: bool) {
        for component in components(path).rev() {
            self.pending.push_front(match component {
                Component::Current => Pending::Current,
                Component::Parent => Pending::Parent,
                Component::Name(name) => Pending::Name {
                    name: name.as_os_str().to_owned(),
                    from_link,
                },
            });
        }
    }

    /// Returns the directory in which the next name is opened.
    fn current(&self) -> BorrowedFd<'_> {
        let last = self.trail.last();
        last.map_or(self.root, |waypoint| waypoint.handle.as_fd())
    }

    /// Removes the pending components up to the next name. Returns the name, and whether it is
    /// part of a link's target. Returns `None` if no name is pending.
    fn next_name(&mut self) -> Result<Option<(OsString, bool)>> {
        while let Some(step) = self.pending.pop_front() {
            if let Some(waypoint) = self.trail.last()
                && waypoint.handle.kind() != FileKind::Directory
            {
                return Err(self.system("open", Errno::ENOTDIR));
            }
            match step {
                Pending::Name { name, from_link } => return Ok(Some((name, from_link))),
                Pending::Current => {}
                // The parent of the root is the root itself, as in the kernel.
                Pending::Parent => drop(self.trail.pop()),
            }
        }
        Ok(None)
    }

    /// Ends the walk at the name `first`, which does not exist.
    fn end_at_missing(&mut self, first: OsString) {
        self.missing.push(first);
        let rest = self.pending.drain(..).filter_map(|step| match step {
            Pending::Name { name, .. } => Some(name),
            Pending::Parent => Some("..".into()),
            Pending::Current => None,
        });
        self.missing.extend(rest);
    }

    /// Enters the file `found`, or continues with the target of `found` if it is a symbolic link.
    fn enter(&mut self, found: Waypoint) -> Result<()> {
        let handle = &found.handle;
        if handle.kind() != FileKind::Symlink {
            if self.trail.len() == MAX_DEPTH {
                return Err(self.system("open", Errno::ENAMETOOLONG));
            }
            self.trail.push(found);
            return Ok(());
        }
        let file_system = fstatfs(handle).map_err(|errno| self.system("open", errno))?;
        self.links += 1;
        if self.links > MAX_LINKS || file_system.filesystem_type() == PROC_SUPER_MAGIC {
            return Err(Error::links(self.path));
        }
        let target = readlinkat(handle, "").map_err(|errno| self.system("read link", errno))?;
        if target.is_empty() {
            return Err(self.system("open", Errno::ENOENT));
        }
        if Path::new(&target).is_absolute() {
            self.trail.clear();
        }
        self.push_front(&target, true);
        Ok(())
    }

    fn system(&self, action: &'static str, errno: Errno) -> Error {
        Error::system(action, self.path, errno)
    }
}
