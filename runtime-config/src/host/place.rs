//! One name in a directory that is held open, and what can be done with it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, readlinkat, renameat2};
use nix::sys::stat::{FileStat, Mode, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, symlinkat, unlinkat};

use super::walk::Dir;
use super::{is_dir, names, read_text};
use crate::error::Error;

/// The mode of directories that are made for everyone's use.
const DIR_MODE: u32 = 0o755;

/// A name in a directory of the host, whether something is there or not.
///
/// No operation follows a link at the name.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directories from the host's root on; never empty.
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

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The path as seen from this process, for messages.
    pub fn shown(&self) -> PathBuf {
        let names = self.dirs.iter().map(|dir| &dir.name);
        names.chain([&self.name]).collect()
    }

    /// A path that this process can give to a call which takes nothing else;
    /// it leads through the handle.
    pub fn through_handle(&self) -> PathBuf {
        let dir = format!("/proc/self/fd/{}", self.dir().as_raw_fd());
        Path::new(&dir).join(&self.name)
    }

    /// Another name in the same directory.
    #[must_use]
    pub fn sibling(&self, name: impl Into<OsString>) -> Self {
        Self::new(self.dirs.clone(), name.into())
    }

    /// The directory itself, as a name in the one above it; `None` in the root.
    pub fn parent(&self) -> Option<Self> {
        let (dir, above) = self.dirs.split_last()?;
        (!above.is_empty()).then(|| Self::new(above.to_vec(), dir.name.clone()))
    }

    /// A name in the directory that is here.
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

    /// What is here; `None`: nothing.
    pub fn stat(&self) -> Result<Option<FileStat>, Error> {
        match fstatat(self.dir(), &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.failed("read")(errno)),
        }
    }

    /// What the link that is here leads to, outside of the root too: the file of a link
    /// of /proc. Its metadata alone is safe to look at.
    pub(crate) fn stat_target(&self) -> Result<FileStat, Error> {
        fstatat(self.dir(), &*self.name, AtFlags::empty()).map_err(self.failed("read"))
    }

    /// The text of the link that is here.
    pub fn read_link(&self) -> Result<PathBuf, Error> {
        let target = readlinkat(self.dir(), &*self.name).map_err(self.failed("read"))?;
        Ok(target.into())
    }

    /// The text of the file that is here; `None`: there is none.
    pub fn read(&self) -> Result<Option<String>, Error> {
        // Opening must not wait for the other end of a pipe.
        match self.open(OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
            Ok(file) => read_text(file, &self.shown()).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            // A link, or a socket or a device without a driver.
            Err(Errno::ELOOP | Errno::ENXIO | Errno::ENODEV) => {
                Err(Error::not_a_file(&self.shown()))
            }
            Err(errno) => Err(self.failed("read")(errno)),
        }
    }

    /// Opens the regular file that is here for reading.
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

    /// Opens the directory that is here, for fsync(2).
    fn open_dir(&self) -> Result<File, Error> {
        self.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY)
            .map_err(self.failed("open"))
    }

    /// The names in the directory that is here, sorted.
    pub fn list(&self) -> Result<Vec<OsString>, Error> {
        let mut names = self.first_names(usize::MAX)?;
        names.sort();
        Ok(names)
    }

    /// The names in the directory that is here, in no order, as many as `limit` at most.
    pub fn first_names(&self, limit: usize) -> Result<Vec<OsString>, Error> {
        names(self.dir(), &self.name, limit).map_err(self.failed("list"))
    }

    /// Creates a directory with mode 0755, regardless of the caller's umask.
    ///
    /// # Errors
    /// Something is here already, or the system refuses; no directory is left then.
    pub fn make_dir(&self) -> Result<(), Error> {
        self.make_dir_with(DIR_MODE)
    }

    /// As [`Place::make_dir`], with another mode.
    pub fn make_dir_with(&self, mode: u32) -> Result<(), Error> {
        // The mode has no bit more than the final one at any time.
        mkdirat(self.dir(), &*self.name, Mode::from_bits_truncate(mode))
            .map_err(self.failed("make"))?;
        let mode = Permissions::from_mode(mode);
        let made = self.open_dir().and_then(|dir| {
            dir.set_permissions(mode)
                .map_err(Error::io("make", &self.shown()))
        });
        made.inspect_err(|_| {
            // The failure at hand matters more than a second one here.
            let _ = self.remove_dir();
        })
    }

    /// Makes a file, has it filled and flushes it to disk. Nobody else can open
    /// it before it has its content and its mode.
    ///
    /// # Errors
    /// Something is here already, or the system refuses; half a file may be
    /// left.
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

    /// Gives what is here another name.
    ///
    /// # Errors
    /// As renameat2(2) with these flags.
    pub fn rename(&self, to: &Self, flags: RenameFlags) -> Result<(), Error> {
        renameat2(self.dir(), &*self.name, to.dir(), &*to.name, flags)
            .map_err(self.failed("rename"))
    }

    /// Removes the file or link that is here.
    pub fn remove_file(&self) -> Result<(), Error> {
        unlinkat(self.dir(), &*self.name, UnlinkatFlags::NoRemoveDir).map_err(self.failed("remove"))
    }

    /// Removes the empty directory that is here.
    pub fn remove_dir(&self) -> Result<(), Error> {
        unlinkat(self.dir(), &*self.name, UnlinkatFlags::RemoveDir).map_err(self.failed("remove"))
    }

    /// Removes a file, link or directory with all in it, if it is here.
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

    /// Flushes the directory, so that a change in it outlives a power cut.
    pub fn sync(&self) -> Result<(), Error> {
        let here = self.sibling(".");
        let dir = here.open_dir()?;
        dir.sync_all()
            .map_err(Error::io("flush", &self.shown_dir()))
    }

    /// Checks that this process may write to the directory.
    ///
    /// # Errors
    /// It may not, or the file system is mounted read-only.
    pub fn check_writable(&self) -> Result<(), Error> {
        faccessat(self.dir(), ".", AccessFlags::W_OK, AtFlags::AT_EACCESS)
            .map_err(|errno| Error::io("write to", &self.shown_dir())(errno.into()))
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
