//! Resolves paths inside a root: by the kernel, or otherwise name by name.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

use super::handle::HANDLE;
use super::path::check;
use super::walk::{self, Place};
use super::{Error, Handle, Result};

/// How often `openat2` is retried if a concurrent rename prevented the
/// resolution of `..` (`EAGAIN`). Then the walk is used, which renames do not
/// affect.
const ATTEMPTS: usize = 16;

/// How paths are resolved inside a root. Both methods have the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// `openat2` with `RESOLVE_IN_ROOT` and `RESOLVE_NO_MAGICLINKS` (Linux 5.6).
    Openat2,
    /// One name at a time, for kernels and seccomp filters without `openat2`.
    Walk,
}

/// A root directory: paths are resolved inside it and never lead out of it.
#[derive(Debug)]
pub(crate) struct RootDir {
    fd: OwnedFd,
    resolver: Resolver,
}

impl RootDir {
    /// The directory `fd` as a root.
    pub(super) fn new(fd: OwnedFd, resolver: Resolver) -> Self {
        Self { fd, resolver }
    }

    /// Opens the root. Its path is trusted and resolved as usual.
    pub(crate) fn open(path: &Path, resolver: Resolver) -> Result<Self> {
        match open(path, HANDLE.union(OFlag::O_DIRECTORY), Mode::empty()) {
            Ok(fd) => Ok(Self { fd, resolver }),
            Err(errno) => Err(Error::System {
                action: "open the root directory",
                path: path.to_owned(),
                errno,
            }),
        }
    }

    /// The root. `path` is for the error only.
    pub(super) fn into_handle(self, path: &Path) -> Result<Handle> {
        Handle::new(self.fd, path)
    }

    /// Resolves `path`, following links inside the root; `None` if it does not
    /// exist.
    pub(crate) fn lookup(&self, path: &Path) -> Result<Option<Handle>> {
        check(path)?;
        match self.resolver {
            Resolver::Openat2 => self.lookup_openat2(path),
            Resolver::Walk => walk::lookup(self.fd.as_fd(), path),
        }
    }

    /// Resolves `path` as far as it exists: returns the last existing file, and
    /// the names of the missing directories below it.
    pub(super) fn deepest(&self, path: &Path) -> Result<(Handle, Vec<OsString>)> {
        check(path)?;
        walk::deepest(self.fd.as_fd(), path)
    }

    /// Resolves `path` to a directory and a name in it, following a link at the
    /// end too.
    pub(super) fn place(&self, path: &Path) -> Result<Place> {
        check(path)?;
        walk::place(self.fd.as_fd(), path)
    }

    fn lookup_openat2(&self, path: &Path) -> Result<Option<Handle>> {
        let how = OpenHow::new()
            .flags(HANDLE)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        for _ in 0..ATTEMPTS {
            match openat2(&self.fd, path, how) {
                Ok(fd) => return Handle::new(fd, path).map(Some),
                Err(Errno::ENOENT) => return Ok(None),
                Err(Errno::EAGAIN) => {}
                Err(Errno::ELOOP) => {
                    let path = path.to_owned();
                    return Err(Error::Links { path });
                }
                Err(errno) => {
                    let path = path.to_owned();
                    return Err(Error::System {
                        action: "open",
                        path,
                        errno,
                    });
                }
            }
        }
        walk::lookup(self.fd.as_fd(), path)
    }
}

impl AsFd for RootDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
