//! Directories, empty files and links in a directory that may be written to.
//!
//! Each operation is one or two calls on a single name, and none follows a
//! symbolic link.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::{Directory, Error, FileKind, Handle, Name, Result, WritableDirectory};

impl WritableDirectory {
    /// Creates the directory `name` with `mode`, or opens the one that is there.
    ///
    /// # Errors
    /// [`Error::Occupied`] if something else has the name, a link to a directory
    /// included; [`Error::NotWritable`] if something is mounted on it.
    pub fn create_dir(&self, name: Name<'_>, mode: Mode) -> Result<Self> {
        self.make_dir(name, mode)?;
        let handle = self.directory().existing(name)?;
        match handle.kind() {
            FileKind::Directory => {
                let path = self.directory().path_of(name);
                self.below(Directory::new(handle.into_fd(), &path))
            }
            found => Err(self.directory().occupied(name, found)),
        }
    }

    /// Creates the file `name` with the content `bytes` and `mode`.
    pub fn write_new(&self, name: Name<'_>, bytes: &[u8], mode: Mode) -> Result<()> {
        match self.directory().open(name)? {
            Some(found) => Err(self.directory().occupied(name, found.kind())),
            None => self.replace(name, None, bytes, mode),
        }
    }

    /// Creates the symbolic link `name` with the text `target`. Nothing happens
    /// if that very link is there.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the name is taken by anything else, a link with
    /// another text included.
    pub fn symlink(&self, name: Name<'_>, target: &Path) -> Result<()> {
        match symlinkat(target, self, name.as_os_str()) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST) => {}
            Err(errno) => {
                let path = self.directory().path_of(name);
                return Err(Error::creating("create symbolic link", path, errno));
            }
        }
        let found = self.directory().existing(name)?;
        if is_link_to(&found, target) {
            return Ok(());
        }
        Err(self.directory().occupied(name, found.kind()))
    }

    /// Removes the entry `name`, which is of that kind: a directory only if it is empty.
    pub fn remove(&self, name: Name<'_>, kind: FileKind) -> Result<()> {
        let flag = match kind {
            FileKind::Directory => UnlinkatFlags::RemoveDir,
            _ => UnlinkatFlags::NoRemoveDir,
        };
        unlinkat(self, name.as_os_str(), flag)
            .map_err(|errno| self.directory().system("remove", name, errno))
    }

    /// Makes the symbolic link `name` lead to `target`, if it does not yet. What
    /// the old link led to stays as it is.
    pub fn redirect_link(&self, name: Name<'_>, target: &Path) -> Result<()> {
        let found = self.directory().existing(name)?;
        if found.kind() != FileKind::Symlink {
            return Err(Error::WrongKind {
                path: self.directory().path_of(name),
                found: found.kind(),
                wanted: FileKind::Symlink,
            });
        }
        if is_link_to(&found, target) {
            return Ok(());
        }
        let ((), temporary) =
            self.create_temporary(name, |temporary| symlinkat(target, self, temporary))?;
        self.rename_over(&temporary, name)
    }

    /// Whether the directory `name` was made; otherwise something has the name.
    pub(super) fn make_dir(&self, name: Name<'_>, mode: Mode) -> Result<bool> {
        match mkdirat(self, name.as_os_str(), mode) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => {
                let path = self.directory().path_of(name);
                Err(Error::creating("create directory", path, errno))
            }
        }
    }

    /// The new file `name`, open for reading, so it does not keep the file
    /// system from becoming read-only. None if something has the name.
    pub(super) fn make_file(&self, name: Name<'_>, mode: Mode) -> Result<Option<OwnedFd>> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        match openat(self, name.as_os_str(), flags, mode) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::EEXIST) => Ok(None),
            Err(errno) => {
                let path = self.directory().path_of(name);
                Err(Error::creating("create file", path, errno))
            }
        }
    }
}

fn is_link_to(found: &Handle, target: &Path) -> bool {
    link_text(found).as_deref() == Some(target)
}

/// The text of a symbolic link.
pub(crate) fn link_text(found: &Handle) -> Option<PathBuf> {
    let is_link = found.kind() == FileKind::Symlink;
    is_link.then(|| readlinkat(found, "").ok().map(PathBuf::from))?
}
