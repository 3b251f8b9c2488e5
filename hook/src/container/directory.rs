//! A directory inside a root, and what is made in it by single names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::symlinkat;

use super::handle::HANDLE_NOFOLLOW;
use super::{Error, FileKind, Handle, Name, Result};

/// A handle on a directory.
///
/// Cheap to clone. To make many entries in one directory, resolve it once and
/// use its methods: each is one or two calls on a single name, and none
/// follows a symbolic link.
#[derive(Clone, Debug)]
pub struct Directory {
    fd: Rc<OwnedFd>,
    /// How the directory was asked for: for messages, never resolved again.
    path: Rc<Path>,
}

impl Directory {
    pub(crate) fn new(fd: OwnedFd, path: &Path) -> Self {
        Self {
            fd: Rc::new(fd),
            path: Rc::from(path),
        }
    }

    /// How the directory was asked for, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How messages call the entry `name`.
    pub(crate) fn path_of(&self, name: Name<'_>) -> PathBuf {
        self.path.join(name.as_os_str())
    }

    /// Whether the two are one handle, so that what is known of one holds for
    /// the other.
    pub(crate) fn same_handle(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.fd, &other.fd)
    }

    /// A handle on the entry `name` itself, whatever it is. None if there is
    /// no such entry.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses.
    pub fn open(&self, name: Name<'_>) -> Result<Option<Handle>> {
        match openat(&self.fd, name.as_os_str(), HANDLE_NOFOLLOW, Mode::empty()) {
            Ok(fd) => Handle::new(fd, &self.path_of(name)).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.system("open", name, errno)),
        }
    }

    /// Makes the directory `name` with `mode`, or takes the one that is there.
    ///
    /// # Errors
    /// [`Error::Occupied`] if something else has the name, a link to a
    /// directory included.
    pub fn create_dir(&self, name: Name<'_>, mode: Mode) -> Result<Self> {
        self.make_dir(name, mode)?;
        let handle = self.existing(name)?;
        match handle.kind() {
            FileKind::Directory => Ok(Self::new(handle.into_fd(), &self.path_of(name))),
            found => Err(self.occupied(name, found)),
        }
    }

    /// Makes the empty file `name` with `mode`. The descriptor is open for
    /// reading, so it does not keep the file system from becoming read-only.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the name is taken.
    pub fn create_file(&self, name: Name<'_>, mode: Mode) -> Result<OwnedFd> {
        match self.make_file(name, mode)? {
            Some(fd) => Ok(fd),
            None => Err(self.occupied(name, self.existing(name)?.kind())),
        }
    }

    /// Makes the file `name` with the content `bytes` and `mode`. Nothing of it
    /// stays open.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the name is taken; [`Error::System`].
    pub fn write_new(&self, name: Name<'_>, bytes: &[u8], mode: Mode) -> Result<()> {
        match self.open(name)? {
            Some(found) => Err(self.occupied(name, found.kind())),
            None => self.replace(name, None, bytes, mode),
        }
    }

    /// Makes the symbolic link `name` with the text `target`. Nothing happens
    /// if that very link is there.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the name is taken by anything else, a link with
    /// another text included.
    pub fn symlink(&self, name: Name<'_>, target: &Path) -> Result<()> {
        match symlinkat(target, &self.fd, name.as_os_str()) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST) => {}
            Err(errno) => {
                let path = self.path_of(name);
                return Err(Error::creating("create symbolic link", path, errno));
            }
        }
        let handle = self.existing(name)?;
        if handle.kind() == FileKind::Symlink
            && readlinkat(&handle, "").is_ok_and(|text| text == target.as_os_str())
        {
            return Ok(());
        }
        Err(self.occupied(name, handle.kind()))
    }

    /// Whether the directory `name` was made; otherwise something has the name.
    pub(super) fn make_dir(&self, name: Name<'_>, mode: Mode) -> Result<bool> {
        match mkdirat(&self.fd, name.as_os_str(), mode) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => {
                let path = self.path_of(name);
                Err(Error::creating("create directory", path, errno))
            }
        }
    }

    /// The new file `name`, open for reading. None if something has the name.
    pub(super) fn make_file(&self, name: Name<'_>, mode: Mode) -> Result<Option<OwnedFd>> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        match openat(&self.fd, name.as_os_str(), flags, mode) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::EEXIST) => Ok(None),
            Err(errno) => {
                let path = self.path_of(name);
                Err(Error::creating("create file", path, errno))
            }
        }
    }

    /// A handle on an entry that was there a moment ago.
    pub(super) fn existing(&self, name: Name<'_>) -> Result<Handle> {
        self.open(name)?
            .ok_or_else(|| self.system("open", name, Errno::ENOENT))
    }

    pub(super) fn system(&self, action: &'static str, name: Name<'_>, errno: Errno) -> Error {
        Error::System {
            action,
            path: self.path_of(name),
            errno,
        }
    }

    pub(super) fn occupied(&self, name: Name<'_>, found: FileKind) -> Error {
        Error::Occupied {
            path: self.path_of(name),
            found,
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
