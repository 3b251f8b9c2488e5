//! Resolution below a root, one name at a time.
//!
//! Every step opens a single name with `O_NOFOLLOW` on the handle of the
//! directory before it, and a link's text is resolved in the same way, starting
//! at the root if it is absolute. `..` returns to the previous handle instead
//! of asking the kernel, so that a directory that is moved concurrently leads
//! nowhere else. Only handles are used, so nothing outside the root can be
//! reached.
//!
//! It differs from `openat2` in one point: every symbolic link of a proc file
//! system is refused, not only magic links, because only the kernel can
//! distinguish them.

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

/// How many symbolic links are followed in one resolution, as in the kernel
/// (path_resolution(7)).
pub const MAX_LINKS: usize = 40;

/// What is done with a symbolic link at the very end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    Follow,
    /// The path leads to the link itself.
    Keep,
}

/// A file on the way, and its name in the directory before it.
#[derive(Debug)]
pub struct Waypoint {
    pub name: OsString,
    pub handle: Handle,
}

/// The path of the last of these files, where the root is at `root`; for messages, and
/// for calls that take no handle.
pub fn path_below(root: &Path, trail: &[Waypoint]) -> PathBuf {
    let names = trail.iter().map(|waypoint| waypoint.name.as_os_str());
    [root.as_os_str()].into_iter().chain(names).collect()
}

/// A file that a walk has come to: a directory, a link that is followed next, or
/// the file at the end.
#[derive(Debug)]
pub struct Step<'a> {
    /// The directories that it is in, from the root's child on.
    pub above: &'a [Waypoint],
    pub found: &'a Waypoint,
}

impl Step<'_> {
    /// The path of the file, where the root is at `root`.
    pub fn path(&self, root: &Path) -> PathBuf {
        path_below(root, self.above).join(&self.found.name)
    }
}

#[derive(Debug)]
pub struct Resolved {
    /// The files from the root's child on, each in the directory before it. Only
    /// the last one may be something else than a directory. Empty: the root.
    pub trail: Vec<Waypoint>,
    /// What does not exist in the last of them: a name, and the steps after it,
    /// `..` included. Empty: the path exists.
    pub missing: Vec<OsString>,
    /// Whether the first missing name comes from a link's text and not from the path.
    pub is_dangling: bool,
}

/// A resolution, step by step, so that the caller can check each file on the way
/// before anything below it is opened.
#[derive(Debug)]
pub struct Walk<'a> {
    root: BorrowedFd<'a>,
    path: &'a Path,
    last: LastLink,
    trail: Vec<Waypoint>,
    /// What the last step found and the next one enters or follows.
    found: Option<Waypoint>,
    pending: VecDeque<Pending>,
    links: usize,
    missing: Vec<OsString>,
    is_dangling: bool,
}

#[derive(Debug)]
enum Pending {
    Current,
    Parent,
    Name {
        name: OsString,
        /// The name comes from a link's text, not from the path.
        from_link: bool,
    },
}

impl<'a> Walk<'a> {
    /// Prepares to resolve `path`, absolute or not, below the directory `root`.
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

    /// Opens the next file on the way. None: the path has ended, or the next name
    /// is missing. A link that is kept is no step.
    pub fn step(&mut self) -> Result<Option<Step<'_>>> {
        if let Some(found) = self.found.take() {
            self.take(found)?;
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

    pub fn finish(mut self) -> Result<Resolved> {
        while self.step()?.is_some() {}
        Ok(Resolved {
            trail: self.trail,
            missing: self.missing,
            is_dangling: self.is_dangling,
        })
    }

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

    fn current(&self) -> BorrowedFd<'_> {
        let last = self.trail.last();
        last.map_or(self.root, |waypoint| waypoint.handle.as_fd())
    }

    /// Processes the steps up to the next name. The flag: it is from a link's text.
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
                // Above the root is the root, as in the kernel.
                Pending::Parent => drop(self.trail.pop()),
            }
        }
        Ok(None)
    }

    fn end_at_missing(&mut self, first: OsString) {
        self.missing.push(first);
        let rest = self.pending.drain(..).filter_map(|step| match step {
            Pending::Name { name, .. } => Some(name),
            Pending::Parent => Some("..".into()),
            Pending::Current => None,
        });
        self.missing.extend(rest);
    }

    /// Continues at `found`: in it, or at its target if it is a link.
    fn take(&mut self, found: Waypoint) -> Result<()> {
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
