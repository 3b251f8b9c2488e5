//! Creates and removes directories, empty files and links in a writable directory.
//!
//! Each operation is one or two system calls on a single name, and does not follow a symbolic
//! link.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::{Error, FileKind, Handle, Name, Result, WritableDirectory};

impl WritableDirectory {
    /// Creates the directory `name` with `mode`, or opens the existing one.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the name exists and is not a directory, including a link to a
    /// directory; [`Error::NotWritable`] if something is mounted on the directory.
    pub fn create_dir(&self, name: Name<'_>, mode: Mode) -> Result<Self> {
        self.make_dir(name, mode)?;
        match self.directory().open_directory(name)? {
            Some(directory) => self.make_writable(directory),
            None => {
                let found = self.directory().open_existing(name)?;
                Err(self.directory().occupied_error(name, found.kind()))
            }
        }
    }

    /// Creates the file `name` with the content `bytes` and `mode`. The name must not exist.
    pub fn write_new(&self, name: Name<'_>, bytes: &[u8], mode: Mode) -> Result<()> {
        match self.directory().open(name)? {
            Some(found) => Err(self.directory().occupied_error(name, found.kind())),
            None => self.replace(name, None, bytes, mode),
        }
    }

    /// Creates the symbolic link `name` with the text `target`. An existing link with the same
    /// text is kept.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the name exists, including a link with another text.
    pub fn symlink(&self, name: Name<'_>, target: &Path) -> Result<()> {
        match symlinkat(target, self, name.as_os_str()) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST) => {}
            Err(errno) => {
                let path = self.directory().path_of(name);
                return Err(Error::from_creation("create symbolic link", path, errno));
            }
        }
        let found = self.directory().open_existing(name)?;
        if is_link_to(&found, target) {
            return Ok(());
        }
        Err(self.directory().occupied_error(name, found.kind()))
    }

    /// Creates the symbolic link `name` with the text `target`, or returns the kind of the file
    /// that has the name. An existing link with the same text is kept, as if it had been created.
    pub(super) fn symlink_or_find(
        &self,
        name: Name<'_>,
        target: &Path,
    ) -> Result<Option<FileKind>> {
        match self.symlink(name, target) {
            Ok(()) => Ok(None),
            Err(Error::Occupied { found, .. }) => Ok(Some(found)),
            Err(error) => Err(error),
        }
    }

    /// Removes the entry `name`, which is of this kind. A directory must be empty.
    pub fn remove(&self, name: Name<'_>, kind: FileKind) -> Result<()> {
        let flag = match kind {
            FileKind::Directory => UnlinkatFlags::RemoveDir,
            _ => UnlinkatFlags::NoRemoveDir,
        };
        unlinkat(self, name.as_os_str(), flag)
            .map_err(|errno| self.directory().system("remove", name, errno))
    }

    /// Makes the existing symbolic link `name` lead to `target`. The former target of the link
    /// is not changed.
    pub fn redirect_link(&self, name: Name<'_>, target: &Path) -> Result<()> {
        let found = self.directory().open_existing(name)?;
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

    /// Creates the directory `name`. Returns false if the name exists already.
    pub(super) fn make_dir(&self, name: Name<'_>, mode: Mode) -> Result<bool> {
        match mkdirat(self, name.as_os_str(), mode) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => {
                let path = self.directory().path_of(name);
                Err(Error::from_creation("create directory", path, errno))
            }
        }
    }

    /// Creates the file `name`. Returns `None` if the name exists already. The file is opened
    /// for reading, because a descriptor for writing would keep the file system from becoming
    /// read-only.
    pub(super) fn make_file(&self, name: Name<'_>, mode: Mode) -> Result<Option<OwnedFd>> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        match openat(self, name.as_os_str(), flags, mode) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::EEXIST) => Ok(None),
            Err(errno) => {
                let path = self.directory().path_of(name);
                Err(Error::from_creation("create file", path, errno))
            }
        }
    }
}

fn is_link_to(found: &Handle, target: &Path) -> bool {
    link_text(found).as_deref() == Some(target)
}

/// Returns the text of a symbolic link, or `None` if `found` is not one.
pub(crate) fn link_text(found: &Handle) -> Option<PathBuf> {
    let is_link = found.kind() == FileKind::Symlink;
    is_link.then(|| readlinkat(found, "").ok().map(PathBuf::from))?
}
