//! Operations on one name in an open directory of the host.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{
    AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, readlinkat, renameat2,
};
use nix::sys::stat::{FileStat, Mode, fstatat, mkdirat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, symlinkat, unlinkat};

use super::walk::Dir;
use super::{is_dir, list_names, read_text};
use crate::error::Error;

/// The mode of new directories. All users can read them, and only root can write to them.
const DIR_MODE: u32 = 0o755;

/// A name in an open directory of the host. A file of this name may exist or not.
///
/// No operation follows a symbolic link at the name, unless its documentation says so.
#[derive(Debug, Clone)]
pub struct Place {
    /// The open directories from the host's root to the one with the name. The list is never
    /// empty.
    dirs: Vec<Dir>,
    name: OsString,
}

impl Place {
    pub(super) fn new(dirs: Vec<Dir>, name: OsString) -> Self {
        Self { dirs, name }
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dirs[self.dirs.len() - 1].fd.as_fd()
    }

    /// Returns the name in the directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the path by which this process can reach the place, for messages.
    pub fn shown(&self) -> PathBuf {
        let names = self.dirs.iter().map(|dir| &dir.name);
        names.chain([&self.name]).collect()
    }

    /// Returns a path through the open directory (`/proc/self/fd/N/NAME`), for calls that accept
    /// only a path. No other process can redirect it by a rename of a parent directory.
    pub fn through_handle(&self) -> PathBuf {
        let dir = format!("/proc/self/fd/{}", self.dir().as_raw_fd());
        Path::new(&dir).join(&self.name)
    }

    /// Returns the place of another name in the same directory.
    #[must_use]
    pub fn sibling(&self, name: impl Into<OsString>) -> Self {
        Self::new(self.dirs.clone(), name.into())
    }

    /// Returns the place of the directory itself in its parent. Returns `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (dir, above) = self.dirs.split_last()?;
        (!above.is_empty()).then(|| Self::new(above.to_vec(), dir.name.clone()))
    }

    /// Opens the directory at this place, and returns the place of a name in it.
    pub fn child(&self, name: impl Into<OsString>) -> Result<Self, Error> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let fd = self.open(flags).map_err(self.failed("open"))?;
        let mut dirs = self.dirs.clone();
        dirs.push(Dir {
            fd: Arc::new(fd.into()),
            name: self.name.clone(),
        });
        Ok(Self::new(dirs, name.into()))
    }

    /// Returns the metadata of the file at this place, or `None` if there is no file.
    pub fn stat(&self) -> Result<Option<FileStat>, Error> {
        match fstatat(self.dir(), &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.failed("read")(errno)),
        }
    }

    /// Returns the metadata of the file to which the link at this place leads, even if the file
    /// is outside of the host's root. The links of /proc need this. The metadata is safe to read;
    /// the file must not be opened.
    pub(crate) fn stat_target(&self) -> Result<FileStat, Error> {
        fstatat(self.dir(), &*self.name, AtFlags::empty()).map_err(self.failed("read"))
    }

    /// Returns the target of the symbolic link at this place, as it is written in the link.
    pub fn read_link(&self) -> Result<PathBuf, Error> {
        let target = readlinkat(self.dir(), &*self.name).map_err(self.failed("read"))?;
        Ok(target.into())
    }

    /// Returns the text of the regular file at this place, or `None` if there is no file.
    ///
    /// # Errors
    /// Fails if the file is not regular, is larger than 4 MiB, or is not UTF-8.
    pub fn read(&self) -> Result<Option<String>, Error> {
        // Without O_NONBLOCK, opening a FIFO would wait for a writer.
        match self.open(OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
            Ok(file) => read_text(file, &self.shown()).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            // The kernel returns ELOOP for a symbolic link, and ENXIO or ENODEV for a socket or
            // for a device without a driver.
            Err(Errno::ELOOP | Errno::ENXIO | Errno::ENODEV) => {
                Err(Error::not_a_file(&self.shown()))
            }
            Err(errno) => Err(self.failed("read")(errno)),
        }
    }

    /// Opens the regular file at this place for reading.
    pub fn open_file(&self) -> Result<File, Error> {
        let file = self
            .open(OFlag::O_RDONLY | OFlag::O_NONBLOCK)
            .map_err(self.failed("read"))?;
        let meta = file.metadata().map_err(Error::io("read", &self.shown()))?;
        if !meta.is_file() {
            return Err(Error::not_a_file(&self.shown()));
        }
        Ok(file)
    }

    /// Opens the directory at this place, for fsync(2).
    fn open_dir(&self) -> Result<File, Error> {
        self.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY)
            .map_err(self.failed("open"))
    }

    /// Lists the names in the directory at this place, sorted.
    pub fn list(&self) -> Result<Vec<OsString>, Error> {
        let mut names = self.first_names(usize::MAX)?;
        names.sort();
        Ok(names)
    }

    /// Lists at most `limit` names in the directory at this place, in no order.
    pub fn first_names(&self, limit: usize) -> Result<Vec<OsString>, Error> {
        list_names(self.dir(), &self.name, limit).map_err(self.failed("list"))
    }

    /// Creates a directory with mode 0755, regardless of the caller's umask.
    ///
    /// # Errors
    /// Fails if a file of this name exists, or if the system refuses. After a failure there is no
    /// new directory.
    pub fn make_dir(&self) -> Result<(), Error> {
        self.make_dir_with(DIR_MODE)
    }

    /// Creates a directory as [`Place::make_dir`] does, but with the given mode.
    pub fn make_dir_with(&self, mode: u32) -> Result<(), Error> {
        // The umask can only remove bits, so at no time does the directory have more permissions
        // than `mode`.
        mkdirat(self.dir(), &*self.name, Mode::from_bits_truncate(mode))
            .map_err(self.failed("make"))?;
        let mode = Permissions::from_mode(mode);
        let made = self.open_dir().and_then(|dir| {
            dir.set_permissions(mode)
                .map_err(Error::io("make", &self.shown()))
        });
        made.inspect_err(|_| {
            // A second failure is ignored, because the first one is reported.
            let _ = self.remove_dir();
        })
    }

    /// Creates a file, calls `fill` to write its content, and flushes it to disk. Until the
    /// content is complete, the file has mode 0600, so that no other user can open it.
    ///
    /// # Errors
    /// Fails if a file of this name exists, if `fill` fails, or if the system refuses. An
    /// incomplete file may remain.
    pub fn create(
        &self,
        mode: u32,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), Error> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let private = Mode::S_IRUSR | Mode::S_IWUSR;
        let mut file = openat(self.dir(), &*self.name, flags, private)
            .map(File::from)
            .map_err(self.failed("write"))?;
        fill(&mut file)
            .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
            .and_then(|()| file.sync_all())
            .map_err(Error::io("write", &self.shown()))
    }

    pub fn make_link(&self, target: &Path) -> Result<(), Error> {
        symlinkat(target, self.dir(), &*self.name).map_err(self.failed("link"))
    }

    /// Renames the file at this place to the place `to`.
    ///
    /// # Errors
    /// Fails like renameat2(2) with these flags.
    pub fn rename(&self, to: &Self, flags: RenameFlags) -> Result<(), Error> {
        renameat2(self.dir(), &*self.name, to.dir(), &*to.name, flags)
            .map_err(self.failed("rename"))
    }

    /// Removes the file or symbolic link at this place.
    pub fn remove_file(&self) -> Result<(), Error> {
        unlinkat(self.dir(), &*self.name, UnlinkatFlags::NoRemoveDir).map_err(self.failed("remove"))
    }

    /// Removes the empty directory at this place.
    pub fn remove_dir(&self) -> Result<(), Error> {
        unlinkat(self.dir(), &*self.name, UnlinkatFlags::RemoveDir).map_err(self.failed("remove"))
    }

    /// Removes the file, the symbolic link, or the directory with its content at this place. If
    /// there is nothing, this is no error.
    pub fn remove_all(&self) -> Result<(), Error> {
        match self.stat()? {
            None => Ok(()),
            Some(stat) if is_dir(&stat) => {
                for name in self.list()? {
                    self.child(name)?.remove_all()?;
                }
                self.remove_dir()
            }
            Some(_) => self.remove_file(),
        }
    }

    /// Returns whether something is mounted at this place, or below it.
    pub fn contains_mount(&self) -> Result<bool, Error> {
        let Some(stat) = self.stat()? else {
            return Ok(false);
        };
        if self.is_mount_point(&stat)? {
            return Ok(true);
        }
        if is_dir(&stat) {
            for name in self.list()? {
                if self.child(name)?.contains_mount()? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether something is mounted at this place. `stat` is the metadata of the place.
    fn is_mount_point(&self, stat: &FileStat) -> Result<bool, Error> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_XDEV);
        match openat2(self.dir(), &*self.name, how) {
            Ok(_) => Ok(false),
            Err(Errno::EXDEV) => Ok(true),
            // Before Linux 5.6, or if a seccomp profile forbids openat2, only a mount of another
            // file system is found.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                let above = fstatat(self.dir(), ".", AtFlags::empty());
                let above = above.map_err(self.failed("read"))?;
                Ok(above.st_dev != stat.st_dev)
            }
            Err(errno) => Err(self.failed("open")(errno)),
        }
    }

    /// Flushes the directory to disk, so that a rename in it survives a power failure.
    pub fn sync(&self) -> Result<(), Error> {
        let here = self.sibling(".");
        let dir = here.open_dir()?;
        dir.sync_all()
            .map_err(Error::io("flush", &self.shown_dir()))
    }

    /// Checks that this process may write to the directory.
    ///
    /// # Errors
    /// Fails if the permissions forbid it, or if the file system is mounted read-only.
    pub fn check_writable(&self) -> Result<(), Error> {
        faccessat(self.dir(), ".", AccessFlags::W_OK, AtFlags::AT_EACCESS)
            .map_err(|errno| Error::io("write to", &self.shown_dir())(errno.into()))
    }

    /// Returns whether the file system of the directory is mounted without permission to execute
    /// programs (`noexec`).
    pub fn forbids_execution(&self) -> Result<bool, Error> {
        let stat = fstatvfs(self.dir())
            .map_err(|errno| Error::io("read", &self.shown_dir())(errno.into()))?;
        Ok(stat.flags().contains(FsFlags::ST_NOEXEC))
    }

    fn shown_dir(&self) -> PathBuf {
        self.dirs.iter().map(|dir| &dir.name).collect()
    }

    fn open(&self, flags: OFlag) -> nix::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(self.dir(), &*self.name, flags, Mode::empty()).map(File::from)
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(Errno) -> Error {
        let path = self.shown();
        move |errno| Error::io(action, &path)(errno.into())
    }
}
