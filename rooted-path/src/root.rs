//! Looks up paths below a root: by the kernel, or otherwise name by name.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::Mode;

use crate::handle::HANDLE;
use crate::path::check;
use crate::{Error, FileKind, Handle, LastLink, Result, Walk};

/// How often `openat2` is retried if a concurrent rename prevented the
/// resolution of `..` (`EAGAIN`). Then the walk is used, which renames do not
/// affect.
const ATTEMPTS: usize = 16;

/// How paths are resolved below a root. Both methods have the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// `openat2` with `RESOLVE_IN_ROOT` and `RESOLVE_NO_MAGICLINKS` (Linux 5.6).
    /// Where the kernel or a seccomp filter refuses the call, the walk.
    Openat2,
    /// One name at a time, without asking for `openat2` first.
    Walk,
}

/// A root directory: paths are resolved inside it and never lead out of it.
#[derive(Debug)]
pub struct RootDir {
    fd: OwnedFd,
    resolver: Resolver,
}

impl RootDir {
    pub fn new(fd: OwnedFd, resolver: Resolver) -> Self {
        Self { fd, resolver }
    }

    /// Opens the root. Its path is trusted and resolved as usual.
    pub fn open(path: &Path, resolver: Resolver) -> Result<Self> {
        match open(path, HANDLE.union(OFlag::O_DIRECTORY), Mode::empty()) {
            Ok(fd) => Ok(Self { fd, resolver }),
            Err(errno) => Err(Error::system("open the root directory", path, errno)),
        }
    }

    /// The root itself. `path` is for the error only.
    pub fn into_handle(self, path: &Path) -> Result<Handle> {
        Handle::new(self.fd, path)
    }

    pub fn handle(&self) -> Result<Handle> {
        let root = Path::new("/");
        let fd = openat(&self.fd, ".", HANDLE, Mode::empty())
            .map_err(|errno| Error::system("open", root, errno))?;
        Handle::new(fd, root)
    }

    /// Resolves `path`, following links inside the root; `None` if it does not
    /// exist.
    pub fn lookup(&self, path: &Path) -> Result<Option<Handle>> {
        check(path)?;
        match self.ask_kernel(path, HANDLE, ResolveFlag::empty()) {
            Some(Ok(fd)) => Handle::new(fd, path).map(Some),
            Some(Err(errno)) => refused(path, errno),
            None => self.walk(path, LastLink::Follow),
        }
    }

    /// Resolves a path that has no links; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Link`] if it has one.
    pub fn lookup_plain(&self, path: &Path) -> Result<Option<Handle>> {
        check(path)?;
        match self.ask_kernel(path, HANDLE, ResolveFlag::RESOLVE_NO_SYMLINKS) {
            Some(Ok(fd)) => return Handle::new(fd, path).map(Some),
            Some(Err(Errno::ELOOP)) => return Err(Error::Link { path: path.into() }),
            Some(Err(errno)) => return refused(path, errno),
            None => {}
        }
        let mut walk = Walk::new(self.fd.as_fd(), path, LastLink::Follow)?;
        while let Some(step) = walk.step()? {
            if step.found.handle.kind() == FileKind::Symlink {
                return Err(Error::Link { path: path.into() });
            }
        }
        self.end(walk)
    }

    /// Opens the file at `path` with these flags, following links inside the root;
    /// `None` if it does not exist. Creates nothing.
    pub fn open_file(&self, path: &Path, flags: OFlag) -> Result<Option<OwnedFd>> {
        check(path)?;
        let flags = flags | OFlag::O_CLOEXEC;
        match self.ask_kernel(path, flags, ResolveFlag::empty()) {
            Some(Ok(fd)) => return Ok(Some(fd)),
            Some(Err(errno)) => return refused(path, errno),
            None => {}
        }
        let last = match flags.contains(OFlag::O_NOFOLLOW) {
            true => LastLink::Keep,
            false => LastLink::Follow,
        };
        let found = self.walk(path, last)?;
        found.map(|found| reopen(found, path, flags)).transpose()
    }

    /// None: the walk has to do it.
    fn ask_kernel(
        &self,
        path: &Path,
        flags: OFlag,
        further: ResolveFlag,
    ) -> Option<nix::Result<OwnedFd>> {
        if self.resolver == Resolver::Walk {
            return None;
        }
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS | further);
        for _ in 0..ATTEMPTS {
            match openat2(&self.fd, path, how) {
                Err(Errno::EAGAIN) => {}
                // Older seccomp filters answer a call that they do not know with EPERM.
                Err(Errno::ENOSYS | Errno::EPERM) => return None,
                answer => return Some(answer),
            }
        }
        None
    }

    fn walk(&self, path: &Path, last: LastLink) -> Result<Option<Handle>> {
        self.end(Walk::new(self.fd.as_fd(), path, last)?)
    }

    fn end(&self, walk: Walk<'_>) -> Result<Option<Handle>> {
        let mut end = walk.finish()?;
        match end.trail.pop() {
            _ if !end.missing.is_empty() => Ok(None),
            Some(found) => Ok(Some(found.handle)),
            None => self.handle().map(Some),
        }
    }
}

fn refused<T>(path: &Path, errno: Errno) -> Result<Option<T>> {
    match errno {
        Errno::ENOENT => Ok(None),
        Errno::ELOOP => Err(Error::links(path)),
        errno => Err(Error::system("open", path, errno)),
    }
}

/// Opens what a walk has found. The descriptor leads to the very file that was found.
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
