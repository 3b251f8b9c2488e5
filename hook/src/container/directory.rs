//! Opens and lists the entries of a directory in a container, without following symbolic links.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::{Error, FileKind, FileName, HANDLE_NOFOLLOW_FLAGS, Handle, Result};

/// A handle on a directory in a container. It can be cloned at low cost. Its methods take single
/// names, do not follow symbolic links, and change nothing. Only [`super::WritableDirectory`] has
/// methods that change files.
#[derive(Clone, Debug)]
pub struct Directory {
    fd: Rc<OwnedFd>,
    /// The path by which the directory was opened. It is only used in messages, because it may lead
    /// to another directory now.
    path: Rc<Path>,
}

impl Directory {
    pub(crate) fn new(fd: OwnedFd, path: &Path) -> Self {
        Self {
            fd: Rc::new(fd),
            path: Rc::from(path),
        }
    }

    /// Returns the path by which the directory was opened. It must only be used in messages,
    /// because it may lead to another directory now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn entry_path(&self, name: FileName<'_>) -> PathBuf {
        self.path.join(name.as_os_str())
    }

    /// Opens the entry `name`, which may be a file of any kind. If the entry is a symbolic link,
    /// opens the link itself. Returns `None` if there is no such entry.
    pub fn open(&self, name: FileName<'_>) -> Result<Option<Handle>> {
        match openat(
            &self.fd,
            name.as_os_str(),
            HANDLE_NOFOLLOW_FLAGS,
            Mode::empty(),
        ) {
            Ok(fd) => Ok(Some(Handle::new(fd, &self.entry_path(name))?)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.system_error("open", name, errno)),
        }
    }

    /// Opens the directory `name`. Returns `None` if no entry has this name, or if the entry is not
    /// a directory. A symbolic link to a directory is not a directory.
    pub(super) fn open_directory(&self, name: FileName<'_>) -> Result<Option<Self>> {
        let flags = HANDLE_NOFOLLOW_FLAGS | OFlag::O_DIRECTORY;
        match openat(&self.fd, name.as_os_str(), flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self::new(fd, &self.entry_path(name)))),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(self.system_error("open", name, errno)),
        }
    }

    /// Reports whether the directory is on a tmpfs, as the root of a mask is.
    pub fn is_tmpfs(&self) -> Result<bool> {
        match fstatfs(&self.fd) {
            Ok(statfs) => Ok(statfs.filesystem_type() == TMPFS_MAGIC),
            Err(errno) => {
                let action = "look at the file system of";
                Err(Error::system(action, &*self.path, errno))
            }
        }
    }

    /// Returns the names of all entries except `.` and `..`. The names are not sorted. Fails if the
    /// directory has more than `max_entries` entries.
    pub fn list_entry_names(&self, max_entries: usize) -> Result<Vec<OsString>> {
        let to_error = |errno| Error::system("list", &*self.path, errno);
        let mut entries = self.open_entries().map_err(to_error)?;
        let mut names = Vec::new();
        for entry in entries.iter() {
            let entry = entry.map_err(to_error)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == max_entries {
                let path = self.path.to_path_buf();
                return Err(Error::TooManyEntries { path, max_entries });
            }
            names.push(OsStr::from_bytes(name).to_owned());
        }
        Ok(names)
    }

    /// Reports whether `matches_name` returns true for the name of an entry. Examines at most
    /// `max_entries` entries, in the kernel's order, so that a huge directory of a hostile image
    /// causes no delay.
    pub fn has_entry(
        &self,
        max_entries: usize,
        mut matches_name: impl FnMut(&OsStr) -> bool,
    ) -> Result<bool> {
        let to_error = |errno| Error::system("list", &*self.path, errno);
        let mut entries = self.open_entries().map_err(to_error)?;
        // `max_entries` does not include the entries `.` and `..`.
        for entry in entries.iter().take(max_entries.saturating_add(2)) {
            let entry = entry.map_err(to_error)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && matches_name(OsStr::from_bytes(name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn open_entries(&self) -> nix::Result<Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Dir::openat(&self.fd, ".", flags, Mode::empty())
    }

    /// Opens the entry `name`. The caller expects that this entry exists. Fails with ENOENT if a
    /// process of the container has removed it.
    pub(super) fn open_existing(&self, name: FileName<'_>) -> Result<Handle> {
        self.open(name)?
            .ok_or_else(|| self.system_error("open", name, Errno::ENOENT))
    }

    pub(super) fn system_error(
        &self,
        action: &'static str,
        name: FileName<'_>,
        errno: Errno,
    ) -> Error {
        Error::system(action, self.entry_path(name), errno)
    }

    pub(super) fn already_exists_error(&self, name: FileName<'_>, found_kind: FileKind) -> Error {
        Error::AlreadyExists {
            path: self.entry_path(name),
            found_kind,
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
