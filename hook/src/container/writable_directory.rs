//! Creates and removes directories, empty files and symbolic links in a directory of a container.
//!
//! Each operation uses a handle on the directory and a single file name. It follows no symbolic
//! link.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::{Error, FileKind, FileName, Handle, Result, WritableDirectory};

impl WritableDirectory {
    /// Opens the directory `name`. Creates it with the mode `mode` if it does not exist.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if `name` exists and is not a directory (a symbolic link to a
    /// directory is not a directory); [`Error::NotWritable`] if the directory is a mount point.
    pub fn create_dir(&self, name: FileName<'_>, mode: Mode) -> Result<Self> {
        self.create_new_dir(name, mode)?;
        match self.directory().open_directory(name)? {
            Some(directory) => self.to_writable_subdirectory(directory),
            None => {
                let entry = self.directory().open_existing(name)?;
                Err(self.directory().already_exists_error(name, entry.kind()))
            }
        }
    }

    /// Creates the file `name` with the content `bytes` and the mode `mode`. Fails with
    /// [`Error::AlreadyExists`] if the name exists.
    pub fn write_new_file(&self, name: FileName<'_>, bytes: &[u8], mode: Mode) -> Result<()> {
        match self.directory().open(name)? {
            Some(entry) => Err(self.directory().already_exists_error(name, entry.kind())),
            None => self.replace(name, None, bytes, mode),
        }
    }

    /// Creates a symbolic link with the name `name` that leads to `target`. Does nothing if the
    /// same link already exists.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if another file, or a symbolic link to another target, has this
    /// name.
    pub fn symlink(&self, name: FileName<'_>, target: &Path) -> Result<()> {
        match symlinkat(target, self, name.as_os_str()) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST) => {}
            Err(errno) => {
                let path = self.directory().entry_path(name);
                return Err(Error::from_creation("create symbolic link", path, errno));
            }
        }
        let entry = self.directory().open_existing(name)?;
        if is_link_to(&entry, target) {
            return Ok(());
        }
        Err(self.directory().already_exists_error(name, entry.kind()))
    }

    /// Creates a symbolic link with the name `name` that leads to `target`. Returns `None` if the
    /// link was created, or if the same link already existed. If another file has the name, changes
    /// nothing and returns the kind of this file.
    pub(super) fn symlink_if_absent(
        &self,
        name: FileName<'_>,
        target: &Path,
    ) -> Result<Option<FileKind>> {
        match self.symlink(name, target) {
            Ok(()) => Ok(None),
            Err(Error::AlreadyExists { found_kind, .. }) => Ok(Some(found_kind)),
            Err(error) => Err(error),
        }
    }

    /// Removes the entry `name`, which has the kind `kind`. Fails if it is a directory that is not
    /// empty.
    pub fn remove(&self, name: FileName<'_>, kind: FileKind) -> Result<()> {
        let flag = match kind {
            FileKind::Directory => UnlinkatFlags::RemoveDir,
            _ => UnlinkatFlags::NoRemoveDir,
        };
        unlinkat(self, name.as_os_str(), flag)
            .map_err(|errno| self.directory().system_error("remove", name, errno))
    }

    /// Replaces the symbolic link `name` atomically by a link to `target`. The file to which the
    /// old link leads stays as it is. Does nothing if the link already leads to `target`.
    pub fn replace_symlink_target(&self, name: FileName<'_>, target: &Path) -> Result<()> {
        let entry = self.directory().open_existing(name)?;
        if entry.kind() != FileKind::Symlink {
            return Err(Error::WrongKind {
                path: self.directory().entry_path(name),
                found_kind: entry.kind(),
                expected_kind: FileKind::Symlink,
            });
        }
        if is_link_to(&entry, target) {
            return Ok(());
        }
        let ((), temporary_name) = self.create_temporary_file(name, |temporary_name| {
            symlinkat(target, self, temporary_name)
        })?;
        self.rename_over(&temporary_name, name)
    }

    /// Creates the directory `name`. Returns false if an entry with this name exists, even if this
    /// entry is not a directory.
    pub(super) fn create_new_dir(&self, name: FileName<'_>, mode: Mode) -> Result<bool> {
        match mkdirat(self, name.as_os_str(), mode) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => {
                let path = self.directory().entry_path(name);
                Err(Error::from_creation("create directory", path, errno))
            }
        }
    }

    /// Creates the empty file `name`. Returns `None` if the name exists.
    ///
    /// The returned handle is only for reading. As long as a file is open for writing, the runtime
    /// could not make its file system read-only.
    pub(super) fn create_new_file(
        &self,
        name: FileName<'_>,
        mode: Mode,
    ) -> Result<Option<OwnedFd>> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        match openat(self, name.as_os_str(), flags, mode) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::EEXIST) => Ok(None),
            Err(errno) => {
                let path = self.directory().entry_path(name);
                Err(Error::from_creation("create file", path, errno))
            }
        }
    }
}

fn is_link_to(file: &Handle, target: &Path) -> bool {
    read_link_target(file).as_deref() == Some(target)
}

/// Returns the target of a symbolic link, as readlinkat(2) returns it. Returns `None` if `file` is
/// not a symbolic link.
pub fn read_link_target(file: &Handle) -> Option<PathBuf> {
    let is_link = file.kind() == FileKind::Symlink;
    is_link.then(|| readlinkat(file, "").ok().map(PathBuf::from))?
}
