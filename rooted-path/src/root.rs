//! Looks up paths below a root directory: with the system call `openat2` or, if it is not
//! available, with a walk that opens one name at a time.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::Mode;

use crate::handle::HANDLE;
use crate::path::check;
use crate::{Error, FileKind, Handle, LastLink, Result, Walk};

/// The number of times that `openat2` is tried before the walk is used. The call fails with
/// `EAGAIN` if any rename on the system happens while it resolves `..` (openat2(2)). Renames do
/// not disturb the walk.
const ATTEMPTS: usize = 16;

/// The method by which paths below a root are resolved. Both methods have the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// `openat2` with `RESOLVE_IN_ROOT` and `RESOLVE_NO_MAGICLINKS` (Linux 5.6). If the kernel
    /// or a seccomp filter refuses the call, the walk is used.
    Openat2,
    /// [`Walk`], which opens one name at a time. `openat2` is not tried.
    Walk,
}

/// A root directory, such as the root of a container. Paths are resolved inside it: neither
/// `..` nor a symbolic link leads out of it.
#[derive(Debug)]
pub struct RootDir {
    fd: OwnedFd,
    resolver: Resolver,
}

impl RootDir {
    pub fn new(fd: OwnedFd, resolver: Resolver) -> Self {
        Self { fd, resolver }
    }

    /// Opens the root directory at `path`. The path itself is trusted: its symbolic links are
    /// followed as by any `open`.
    pub fn open(path: &Path, resolver: Resolver) -> Result<Self> {
        match open(path, HANDLE.union(OFlag::O_DIRECTORY), Mode::empty()) {
            Ok(fd) => Ok(Self { fd, resolver }),
            Err(errno) => Err(Error::system("open the root directory", path, errno)),
        }
    }

    /// Returns a handle on the root directory itself. `path` is only used in the error message.
    pub fn into_handle(self, path: &Path) -> Result<Handle> {
        Handle::new(self.fd, path)
    }

    /// Returns a new handle on the root directory itself.
    pub fn handle(&self) -> Result<Handle> {
        let root = Path::new("/");
        let fd = openat(&self.fd, ".", HANDLE, Mode::empty())
            .map_err(|errno| Error::system("open", root, errno))?;
        Handle::new(fd, root)
    }

    /// Resolves `path`, and follows symbolic links inside the root. Returns `None` if the path
    /// does not exist.
    pub fn lookup(&self, path: &Path) -> Result<Option<Handle>> {
        check(path)?;
        match self.resolve_with_openat2(path, HANDLE, ResolveFlag::empty()) {
            Some(Ok(fd)) => Handle::new(fd, path).map(Some),
            Some(Err(errno)) => absent_or_error(path, errno),
            None => self.walk(path, LastLink::Follow),
        }
    }

    /// Resolves a path without following symbolic links. Returns `None` if the path does not
    /// exist.
    ///
    /// # Errors
    /// Returns [`Error::Link`] if a component of the path is a symbolic link.
    pub fn lookup_plain(&self, path: &Path) -> Result<Option<Handle>> {
        check(path)?;
        match self.resolve_with_openat2(path, HANDLE, ResolveFlag::RESOLVE_NO_SYMLINKS) {
            Some(Ok(fd)) => return Handle::new(fd, path).map(Some),
            Some(Err(Errno::ELOOP)) => return Err(Error::Link { path: path.into() }),
            Some(Err(errno)) => return absent_or_error(path, errno),
            None => {}
        }
        let mut walk = Walk::new(self.fd.as_fd(), path, LastLink::Follow)?;
        while let Some(step) = walk.step()? {
            if step.found.handle.kind() == FileKind::Symlink {
                return Err(Error::Link { path: path.into() });
            }
        }
        self.finish_walk(walk)
    }

    /// Opens the file at `path` with these flags, and follows symbolic links inside the root.
    /// Returns `None` if the file does not exist. No file is created.
    pub fn open_file(&self, path: &Path, flags: OFlag) -> Result<Option<OwnedFd>> {
        check(path)?;
        let flags = flags | OFlag::O_CLOEXEC;
        match self.resolve_with_openat2(path, flags, ResolveFlag::empty()) {
            Some(Ok(fd)) => return Ok(Some(fd)),
            Some(Err(errno)) => return absent_or_error(path, errno),
            None => {}
        }
        let last = if flags.contains(OFlag::O_NOFOLLOW) {
            LastLink::Keep
        } else {
            LastLink::Follow
        };
        let found = self.walk(path, last)?;
        found.map(|found| reopen(found, path, flags)).transpose()
    }

    /// Resolves `path` with `openat2`. Returns `None` if the call is not available, or if it
    /// failed [`ATTEMPTS`] times because of renames. The caller then has to use the walk.
    fn resolve_with_openat2(
        &self,
        path: &Path,
        flags: OFlag,
        additional: ResolveFlag,
    ) -> Option<nix::Result<OwnedFd>> {
        if self.resolver == Resolver::Walk {
            return None;
        }
        let how = OpenHow::new().flags(flags).resolve(
            ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS | additional,
        );
        for _ in 0..ATTEMPTS {
            match openat2(&self.fd, path, how) {
                Err(Errno::EAGAIN) => {}
                // Older seccomp filters return EPERM for system calls that they do not know.
                Err(Errno::ENOSYS | Errno::EPERM) => return None,
                result => return Some(result),
            }
        }
        None
    }

    fn walk(&self, path: &Path, last: LastLink) -> Result<Option<Handle>> {
        self.finish_walk(Walk::new(self.fd.as_fd(), path, last)?)
    }

    /// Completes a walk. Returns `None` if the path does not exist.
    fn finish_walk(&self, walk: Walk<'_>) -> Result<Option<Handle>> {
        let mut end = walk.finish()?;
        match end.trail.pop() {
            _ if !end.missing.is_empty() => Ok(None),
            Some(found) => Ok(Some(found.handle)),
            None => self.handle().map(Some),
        }
    }
}

/// Turns the error of a failed look-up into a result: `None` if the path does not exist.
fn absent_or_error<T>(path: &Path, errno: Errno) -> Result<Option<T>> {
    match errno {
        Errno::ENOENT => Ok(None),
        Errno::ELOOP => Err(Error::links(path)),
        errno => Err(Error::system("open", path, errno)),
    }
}

/// Opens the file that a walk has found, with the given flags. The file is opened through the link
/// of its handle in /proc/self/fd. By its path, another file could be opened that was meanwhile
/// moved there.
fn reopen(found: Handle, path: &Path, flags: OFlag) -> Result<OwnedFd> {
    let must_be_directory = flags.contains(OFlag::O_DIRECTORY);
    match found.kind() {
        FileKind::Directory => {}
        _ if must_be_directory => return Err(Error::system("open", path, Errno::ENOTDIR)),
        FileKind::Symlink if !flags.contains(OFlag::O_PATH) => return Err(Error::links(path)),
        _ => {}
    }
    if flags.contains(OFlag::O_PATH) {
        return Ok(found.into_fd());
    }
    let link = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let flags = flags.difference(OFlag::O_NOFOLLOW);
    open(link.as_str(), flags, Mode::empty()).map_err(|errno| Error::system("open", path, errno))
}

impl AsFd for RootDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
