//! A directory inside a root, for reading.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::{Error, FileKind, HANDLE_NOFOLLOW, Handle, Name, Result};

/// A handle on a directory, which is cheap to clone. The methods take single names and do not
/// follow symbolic links. [`super::WritableDirectory`] has the methods that create or change
/// something.
#[derive(Clone, Debug)]
pub struct Directory {
    fd: Rc<OwnedFd>,
    /// The path by which the directory was opened. It is used in messages only and never
    /// resolved again.
    path: Rc<Path>,
}

impl Directory {
    pub(crate) fn new(fd: OwnedFd, path: &Path) -> Self {
        Self {
            fd: Rc::new(fd),
            path: Rc::from(path),
        }
    }

    /// Returns the path by which the directory was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn path_of(&self, name: Name<'_>) -> PathBuf {
        self.path.join(name.as_os_str())
    }

    /// Opens the entry `name`, of any kind and without following a symbolic link. Returns
    /// `None` if it does not exist.
    pub fn open(&self, name: Name<'_>) -> Result<Option<Handle>> {
        match openat(&self.fd, name.as_os_str(), HANDLE_NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(Handle::new(fd, &self.path_of(name))?)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.system("open", name, errno)),
        }
    }

    /// Opens the directory `name`. Returns `None` if the entry does not exist or is something else,
    /// also a symbolic link.
    pub(super) fn open_directory(&self, name: Name<'_>) -> Result<Option<Self>> {
        let flags = HANDLE_NOFOLLOW | OFlag::O_DIRECTORY;
        match openat(&self.fd, name.as_os_str(), flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self::new(fd, &self.path_of(name)))),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(self.system("open", name, errno)),
        }
    }

    /// Returns the names of all entries in any order, without `.` and `..`. The call fails if
    /// there are more than `cap`.
    pub fn list_names(&self, cap: usize) -> Result<Vec<OsString>> {
        let failed = |errno| Error::system("list", &*self.path, errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mut entries = Dir::openat(&self.fd, ".", flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in entries.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == cap {
                let path = self.path.to_path_buf();
                return Err(Error::TooManyEntries { path, cap });
            }
            names.push(OsStr::from_bytes(name).to_owned());
        }
        Ok(names)
    }

    /// Opens an entry that existed a moment ago. If it was removed meanwhile, that is an
    /// error.
    pub(super) fn open_existing(&self, name: Name<'_>) -> Result<Handle> {
        self.open(name)?
            .ok_or_else(|| self.system("open", name, Errno::ENOENT))
    }

    pub(super) fn system(&self, action: &'static str, name: Name<'_>, errno: Errno) -> Error {
        Error::system(action, self.path_of(name), errno)
    }

    pub(super) fn occupied_error(&self, name: Name<'_>, found: FileKind) -> Error {
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
