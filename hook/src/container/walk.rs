//! Resolution inside a root without `openat2`: one name at a time.
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

use super::handle::{HANDLE, HANDLE_NOFOLLOW};
use super::path::{Component, MAX_DEPTH, components};
use super::{Error, FileKind, Handle, Result};

/// How many symbolic links are followed in one resolution, as in the kernel.
const MAX_LINKS: usize = 40;

/// A remaining step.
#[derive(Debug)]
enum Pending {
    Current,
    Parent,
    Name(Lookup),
}

/// A name to resolve.
#[derive(Debug)]
struct Lookup {
    name: OsString,
    /// The name comes from a link's text, not from the requested path.
    from_link: bool,
}

/// The result: the last existing directory, the names of the missing ones below
/// it, the last name, and the file with that name.
pub(super) struct Place {
    pub(super) directory: Handle,
    pub(super) missing: Vec<OsString>,
    pub(super) name: OsString,
    pub(super) found: Option<Handle>,
}

/// The state of a resolution.
struct Walk<'a> {
    root: BorrowedFd<'a>,
    path: &'a Path,
    /// The handles from the root's child to the current directory.
    trail: Vec<Handle>,
    pending: VecDeque<Pending>,
    links: usize,
}

/// Resolves `path` in `root`, following every link inside the root. None if a
/// name is missing.
pub(super) fn lookup(root: BorrowedFd<'_>, path: &Path) -> Result<Option<Handle>> {
    let mut walk = Walk::new(root, path);
    while let Some(next) = walk.next_name()? {
        match walk.open(&next.name)? {
            None => return Ok(None),
            Some(handle) => walk.take(handle)?,
        }
    }
    walk.here().map(Some)
}

/// Resolves `path` like [`lookup`], as far as it exists: the last existing
/// file, and the names of the missing directories below it.
pub(super) fn deepest(root: BorrowedFd<'_>, path: &Path) -> Result<(Handle, Vec<OsString>)> {
    let mut walk = Walk::new(root, path);
    while let Some(next) = walk.next_name()? {
        match walk.open(&next.name)? {
            Some(handle) => walk.take(handle)?,
            None => {
                let missing = walk.missing(next)?;
                return Ok((walk.here()?, missing));
            }
        }
    }
    Ok((walk.here()?, Vec::new()))
}

/// Resolves `path` to a name, following a link at the end too, so that the file
/// with that name can be replaced.
pub(super) fn place(root: BorrowedFd<'_>, path: &Path) -> Result<Place> {
    let mut walk = Walk::new(root, path);
    while let Some(next) = walk.next_name()? {
        match walk.open(&next.name)? {
            Some(handle) if handle.kind() == FileKind::Symlink || !walk.pending.is_empty() => {
                walk.take(handle)?;
            }
            Some(found) => {
                return Ok(Place {
                    directory: walk.here()?,
                    missing: Vec::new(),
                    name: next.name,
                    found: Some(found),
                });
            }
            None => {
                let mut missing = walk.missing(next)?;
                if let Some(name) = missing.pop() {
                    return Ok(Place {
                        directory: walk.here()?,
                        missing,
                        name,
                        found: None,
                    });
                }
            }
        }
    }
    Err(Error::WrongKind {
        path: path.to_owned(),
        found: FileKind::Directory,
        wanted: FileKind::Regular,
    })
}

impl<'a> Walk<'a> {
    fn new(root: BorrowedFd<'a>, path: &'a Path) -> Self {
        let mut walk = Self {
            root,
            path,
            trail: Vec::new(),
            pending: VecDeque::new(),
            links: 0,
        };
        walk.push_front(path.as_os_str(), false);
        walk
    }

    fn push_front(&mut self, path: &OsStr, from_link: bool) {
        for component in components(path).rev() {
            self.pending.push_front(match component {
                Component::Current => Pending::Current,
                Component::Parent => Pending::Parent,
                Component::Name(name) => Pending::Name(Lookup {
                    name: name.as_os_str().to_owned(),
                    from_link,
                }),
            });
        }
    }

    /// The current directory.
    fn current(&self) -> BorrowedFd<'_> {
        self.trail.last().map_or(self.root, AsFd::as_fd)
    }

    /// Processes the steps up to the next name.
    fn next_name(&mut self) -> Result<Option<Lookup>> {
        while let Some(step) = self.pending.pop_front() {
            if let Some(handle) = self.trail.last()
                && handle.kind() != FileKind::Directory
            {
                return Err(self.system("open", Errno::ENOTDIR));
            }
            match step {
                Pending::Name(lookup) => return Ok(Some(lookup)),
                Pending::Current => {}
                // Above the root is the root, as in the kernel.
                Pending::Parent => drop(self.trail.pop()),
            }
        }
        Ok(None)
    }

    fn open(&self, name: &OsStr) -> Result<Option<Handle>> {
        match openat(self.current(), name, HANDLE_NOFOLLOW, Mode::empty()) {
            Ok(fd) => Handle::new(fd, self.path).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.system("open", errno)),
        }
    }

    /// The names from `first`, which does not exist, to the end of the path.
    /// Only names of the path itself may be missing, not those of a link's text.
    fn missing(&mut self, first: Lookup) -> Result<Vec<OsString>> {
        if first.from_link {
            return Err(self.dangling(first.name));
        }
        let mut names = vec![first.name];
        for step in self.pending.drain(..) {
            match step {
                Pending::Name(lookup) => names.push(lookup.name),
                Pending::Current => {}
                Pending::Parent => {
                    return Err(Error::System {
                        action: "open",
                        path: self.path.to_owned(),
                        errno: Errno::ENOENT,
                    });
                }
            }
        }
        Ok(names)
    }

    /// Continues at `handle`: in it, or at its target if it is a link.
    fn take(&mut self, handle: Handle) -> Result<()> {
        if handle.kind() != FileKind::Symlink {
            if self.trail.len() == MAX_DEPTH {
                return Err(self.system("open", Errno::ENAMETOOLONG));
            }
            self.trail.push(handle);
            return Ok(());
        }
        let file_system = fstatfs(&handle).map_err(|errno| self.system("open", errno))?;
        self.links += 1;
        if self.links > MAX_LINKS || file_system.filesystem_type() == PROC_SUPER_MAGIC {
            return Err(Error::Links {
                path: self.path.to_owned(),
            });
        }
        let target = readlinkat(&handle, "").map_err(|errno| self.system("read link", errno))?;
        if target.is_empty() {
            return Err(self.system("open", Errno::ENOENT));
        }
        if Path::new(&target).is_absolute() {
            self.trail.clear();
        }
        self.push_front(&target, true);
        Ok(())
    }

    /// The current position of the walk.
    fn here(&mut self) -> Result<Handle> {
        if let Some(handle) = self.trail.pop() {
            return Ok(handle);
        }
        let fd = openat(self.root, ".", HANDLE, Mode::empty())
            .map_err(|errno| self.system("open", errno))?;
        Handle::new(fd, self.path)
    }

    fn system(&self, action: &'static str, errno: Errno) -> Error {
        Error::System {
            action,
            path: self.path.to_owned(),
            errno,
        }
    }

    fn dangling(&self, missing: OsString) -> Error {
        Error::Dangling {
            path: self.path.to_owned(),
            missing: PathBuf::from(missing),
        }
    }
}
