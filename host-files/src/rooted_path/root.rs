//! Looks up paths below a root directory with the system call `openat2`. If `openat2` is not
//! available, a [`Walk`] opens one component of the path at a time.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::Mode;

use crate::rooted_path::handle::HANDLE_FLAGS;
use crate::rooted_path::path::check_path;
use crate::rooted_path::{Error, FileKind, Handle, Result, TrailingSymlink, Walk};

/// The number of attempts with `openat2` before a [`Walk`] is used instead. `openat2` fails with
/// `EAGAIN` if any file of the system is renamed while it resolves `..` (openat2(2)). Renames do
/// not affect a walk.
const MAX_OPENAT2_ATTEMPTS: usize = 16;

/// The method that resolves paths below a root directory. Both methods have the same results,
/// except that a walk refuses all symbolic links of a proc file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// `openat2` with `RESOLVE_IN_ROOT` and `RESOLVE_NO_MAGICLINKS` (Linux 5.6). If the kernel does
    /// not have this call, or a seccomp filter refuses it, a [`Walk`] is used.
    Openat2,
    /// A [`Walk`], which opens one component at a time. `openat2` is not used.
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

    /// Opens the root directory at `path`. This path is trusted, so open(2) follows the symbolic
    /// links in it.
    pub fn open(path: &Path, resolver: Resolver) -> Result<Self> {
        match open(path, HANDLE_FLAGS.union(OFlag::O_DIRECTORY), Mode::empty()) {
            Ok(fd) => Ok(Self { fd, resolver }),
            Err(errno) => Err(Error::system("open the root directory", path, errno)),
        }
    }

    /// Returns a handle on the root directory. `path` is only used in the error message.
    pub fn into_handle(self, path: &Path) -> Result<Handle> {
        Handle::new(self.fd, path)
    }

    /// Opens a new handle on the root directory. The handle stays valid after this value is
    /// dropped.
    pub fn handle(&self) -> Result<Handle> {
        let root = Path::new("/");
        let fd = openat(&self.fd, ".", HANDLE_FLAGS, Mode::empty())
            .map_err(|errno| Error::system("open", root, errno))?;
        Handle::new(fd, root)
    }

    /// Resolves `path`. Symbolic links are followed inside the root. Returns `None` if the path
    /// does not exist.
    pub fn lookup(&self, path: &Path) -> Result<Option<Handle>> {
        check_path(path)?;
        match self.resolve_with_openat2(path, HANDLE_FLAGS, ResolveFlag::empty()) {
            Some(Ok(fd)) => Handle::new(fd, path).map(Some),
            Some(Err(errno)) => convert_lookup_errno(path, errno),
            None => self.walk(path, TrailingSymlink::Follow),
        }
    }

    /// Resolves a path without following symbolic links. Returns `None` if the path does not
    /// exist.
    ///
    /// # Errors
    /// Returns [`Error::UnexpectedLink`] if a component of the path is a symbolic link.
    pub fn lookup_no_symlinks(&self, path: &Path) -> Result<Option<Handle>> {
        check_path(path)?;
        match self.resolve_with_openat2(path, HANDLE_FLAGS, ResolveFlag::RESOLVE_NO_SYMLINKS) {
            Some(Ok(fd)) => return Handle::new(fd, path).map(Some),
            Some(Err(Errno::ELOOP)) => return Err(Error::UnexpectedLink { path: path.into() }),
            Some(Err(errno)) => return convert_lookup_errno(path, errno),
            None => {}
        }
        let mut walk = Walk::new(self.fd.as_fd(), path, TrailingSymlink::Follow)?;
        while let Some(step) = walk.step()? {
            if step.file.handle.kind() == FileKind::Symlink {
                return Err(Error::UnexpectedLink { path: path.into() });
            }
        }
        self.finish_walk(walk)
    }

    /// Opens the file at `path` with these flags of open(2). Symbolic links are followed inside the
    /// root. If the file does not exist, returns `None` and does not create the file.
    pub fn open_file(&self, path: &Path, flags: OFlag) -> Result<Option<OwnedFd>> {
        check_path(path)?;
        let flags = flags | OFlag::O_CLOEXEC;
        match self.resolve_with_openat2(path, flags, ResolveFlag::empty()) {
            Some(Ok(fd)) => return Ok(Some(fd)),
            Some(Err(errno)) => return convert_lookup_errno(path, errno),
            None => {}
        }
        let trailing_symlink = if flags.contains(OFlag::O_NOFOLLOW) {
            TrailingSymlink::NoFollow
        } else {
            TrailingSymlink::Follow
        };
        let handle = self.walk(path, trailing_symlink)?;
        handle
            .map(|handle| reopen_handle(handle, path, flags))
            .transpose()
    }

    /// Resolves `path` with `openat2`. Returns `None` if the call is not available, or if renames
    /// have made it fail [`MAX_OPENAT2_ATTEMPTS`] times. The caller must then use a [`Walk`].
    fn resolve_with_openat2(
        &self,
        path: &Path,
        flags: OFlag,
        extra_resolve_flags: ResolveFlag,
    ) -> Option<nix::Result<OwnedFd>> {
        if self.resolver == Resolver::Walk {
            return None;
        }
        let how = OpenHow::new().flags(flags).resolve(
            ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS | extra_resolve_flags,
        );
        for _ in 0..MAX_OPENAT2_ATTEMPTS {
            match openat2(&self.fd, path, how) {
                Err(Errno::EAGAIN) => {}
                // For an unknown system call, older seccomp filters return EPERM instead of ENOSYS.
                Err(Errno::ENOSYS | Errno::EPERM) => return None,
                result => return Some(result),
            }
        }
        None
    }

    fn walk(&self, path: &Path, trailing_symlink: TrailingSymlink) -> Result<Option<Handle>> {
        self.finish_walk(Walk::new(self.fd.as_fd(), path, trailing_symlink)?)
    }

    /// Takes all steps of a walk, and returns a handle on the file at the end of the path. Returns
    /// `None` if the path does not exist.
    fn finish_walk(&self, walk: Walk<'_>) -> Result<Option<Handle>> {
        let mut resolved_path = walk.finish()?;
        match resolved_path.opened_components.pop() {
            _ if !resolved_path.missing_names.is_empty() => Ok(None),
            Some(component) => Ok(Some(component.handle)),
            None => self.handle().map(Some),
        }
    }
}

/// Converts the error number of a failed look-up. Returns `None` if the path does not exist, and an
/// error in all other cases.
fn convert_lookup_errno<T>(path: &Path, errno: Errno) -> Result<Option<T>> {
    match errno {
        Errno::ENOENT => Ok(None),
        Errno::ELOOP => Err(Error::too_many_links(path)),
        errno => Err(Error::system("open", path, errno)),
    }
}

/// Opens the file of a handle again with these flags of open(2), through its link in /proc/self/fd.
/// The path is not used for this, because another file may have been moved there in the meantime.
fn reopen_handle(handle: Handle, path: &Path, flags: OFlag) -> Result<OwnedFd> {
    let must_be_directory = flags.contains(OFlag::O_DIRECTORY);
    match handle.kind() {
        FileKind::Directory => {}
        _ if must_be_directory => return Err(Error::system("open", path, Errno::ENOTDIR)),
        FileKind::Symlink if !flags.contains(OFlag::O_PATH) => {
            return Err(Error::too_many_links(path));
        }
        _ => {}
    }
    if flags.contains(OFlag::O_PATH) {
        return Ok(handle.into_fd());
    }
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    let flags = flags.difference(OFlag::O_NOFOLLOW);
    open(link.as_str(), flags, Mode::empty()).map_err(|errno| Error::system("open", path, errno))
}

impl AsFd for RootDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
