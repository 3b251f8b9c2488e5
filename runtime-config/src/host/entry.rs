//! Operations on one directory entry of the host. They use the open parent directory of the entry.

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

use super::open_dir::OpenDir;
use super::{is_dir, list_names, read_text};
use crate::error::Error;

/// The mode of new directories. All users can read them, and only root can write to them.
const DIR_MODE: u32 = 0o755;

/// A name in an open directory of the host. A file with this name need not exist.
///
/// If the name is a symbolic link, no operation follows it, unless its documentation says so.
#[derive(Debug, Clone)]
pub struct HostEntry {
    /// The open directories on the path of the file, from the host's root to the parent directory.
    /// The list is never empty.
    dirs: Vec<OpenDir>,
    name: OsString,
}

impl HostEntry {
    pub(super) fn new(dirs: Vec<OpenDir>, name: OsString) -> Self {
        Self { dirs, name }
    }

    pub(super) fn dir_fd(&self) -> BorrowedFd<'_> {
        self.dirs[self.dirs.len() - 1].fd.as_fd()
    }

    /// Returns the name of the file, without its directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the path of the file as this process sees it, for messages.
    pub fn display_path(&self) -> PathBuf {
        let names = self.dirs.iter().map(|dir| &dir.name);
        names.chain([&self.name]).collect()
    }

    /// Returns a path that leads through the open directory (`/proc/self/fd/N/NAME`), for calls
    /// that accept only a path. It leads to the same directory even if another process renames one
    /// of the parent directories.
    pub fn proc_fd_path(&self) -> PathBuf {
        let dir = format!("/proc/self/fd/{}", self.dir_fd().as_raw_fd());
        Path::new(&dir).join(&self.name)
    }

    /// Returns the entry for another name in the same directory.
    #[must_use]
    pub fn sibling(&self, name: impl Into<OsString>) -> Self {
        Self::new(self.dirs.clone(), name.into())
    }

    /// Returns the entry of the directory that contains this file. Returns `None` if that directory
    /// is the host's root.
    pub fn parent(&self) -> Option<Self> {
        let (dir, parents) = self.dirs.split_last()?;
        (!parents.is_empty()).then(|| Self::new(parents.to_vec(), dir.name.clone()))
    }

    /// Opens the directory with this name, and returns the entry for `name` in it.
    pub fn child(&self, name: impl Into<OsString>) -> Result<Self, Error> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let fd = self.open(flags).map_err(self.errno_to_error("open"))?;
        let mut dirs = self.dirs.clone();
        dirs.push(OpenDir {
            fd: Arc::new(fd.into()),
            name: self.name.clone(),
        });
        Ok(Self::new(dirs, name.into()))
    }

    /// Returns the metadata of the file, or `None` if no file has this name.
    pub fn stat(&self) -> Result<Option<FileStat>, Error> {
        match fstatat(self.dir_fd(), &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.errno_to_error("read")(errno)),
        }
    }

    /// Returns the metadata of the target of this symbolic link. A link in /proc, such as `exe`,
    /// can lead out of the host's root. To read the metadata of its target is safe, but the target
    /// must not be opened.
    pub(crate) fn stat_target(&self) -> Result<FileStat, Error> {
        fstatat(self.dir_fd(), &*self.name, AtFlags::empty()).map_err(self.errno_to_error("read"))
    }

    /// Returns the path to which this symbolic link leads. The path is not resolved.
    pub fn read_link(&self) -> Result<PathBuf, Error> {
        let target = readlinkat(self.dir_fd(), &*self.name).map_err(self.errno_to_error("read"))?;
        Ok(target.into())
    }

    /// Returns the text of the regular file, or `None` if no file has this name.
    ///
    /// # Errors
    /// Fails if the file is not a regular file, is larger than 4 MiB, or is not UTF-8.
    pub fn read(&self) -> Result<Option<String>, Error> {
        // Without O_NONBLOCK, opening a FIFO would wait for a writer.
        match self.open(OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
            Ok(file) => read_text(file, &self.display_path()).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            // The kernel returns ELOOP for a symbolic link. It returns ENXIO or ENODEV for a
            // socket, and for a device without a driver.
            Err(Errno::ELOOP | Errno::ENXIO | Errno::ENODEV) => {
                Err(Error::new_not_regular_file(&self.display_path()))
            }
            Err(errno) => Err(self.errno_to_error("read")(errno)),
        }
    }

    /// Opens the file for reading. Fails if it is not a regular file.
    pub fn open_file(&self) -> Result<File, Error> {
        let file = self
            .open(OFlag::O_RDONLY | OFlag::O_NONBLOCK)
            .map_err(self.errno_to_error("read"))?;
        let metadata = file
            .metadata()
            .map_err(Error::io("read", &self.display_path()))?;
        if !metadata.is_file() {
            return Err(Error::new_not_regular_file(&self.display_path()));
        }
        Ok(file)
    }

    /// Opens the directory with this name, for fsync(2).
    fn open_dir(&self) -> Result<File, Error> {
        self.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY)
            .map_err(self.errno_to_error("open"))
    }

    /// Returns the sorted names of all files in the directory with this name.
    pub fn list(&self) -> Result<Vec<OsString>, Error> {
        let mut names = self.list_limited(usize::MAX)?;
        names.sort();
        Ok(names)
    }

    /// Returns the names of at most `limit` files in the directory with this name. They are not
    /// sorted.
    pub fn list_limited(&self, limit: usize) -> Result<Vec<OsString>, Error> {
        list_names(self.dir_fd(), &self.name, limit).map_err(self.errno_to_error("list"))
    }

    /// Creates a directory with mode 0755. The umask of the process has no effect.
    ///
    /// # Errors
    /// Fails if a file with this name exists, or if the system refuses. No new directory is left
    /// after a failure.
    pub fn make_dir(&self) -> Result<(), Error> {
        self.make_dir_with_mode(DIR_MODE)
    }

    /// Creates a directory like [`HostEntry::make_dir`], but with the mode `mode`.
    pub fn make_dir_with_mode(&self, mode: u32) -> Result<(), Error> {
        // The umask only removes permission bits. So the new directory never has more permissions
        // than `mode`.
        mkdirat(self.dir_fd(), &*self.name, Mode::from_bits_truncate(mode))
            .map_err(self.errno_to_error("make"))?;
        let permissions = Permissions::from_mode(mode);
        let result = self.open_dir().and_then(|dir| {
            dir.set_permissions(permissions)
                .map_err(Error::io("make", &self.display_path()))
        });
        result.inspect_err(|_| {
            // An error of this removal is ignored, because the first error is reported.
            let _ = self.remove_dir();
        })
    }

    /// Creates the file, calls `write_content`, and flushes the file to disk. Until the content is
    /// complete, the file has mode 0600, so that no other user can open it.
    ///
    /// # Errors
    /// Fails if a file with this name exists, if `write_content` fails, or if the system refuses.
    /// An incomplete file may be left after a failure.
    pub fn create_file(
        &self,
        mode: u32,
        write_content: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), Error> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let owner_only_mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let mut file = openat(self.dir_fd(), &*self.name, flags, owner_only_mode)
            .map(File::from)
            .map_err(self.errno_to_error("write"))?;
        write_content(&mut file)
            .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
            .and_then(|()| file.sync_all())
            .map_err(Error::io("write", &self.display_path()))
    }

    /// Creates a symbolic link to `target` with this name. Fails if a file with this name exists.
    pub fn make_symlink(&self, target: &Path) -> Result<(), Error> {
        symlinkat(target, self.dir_fd(), &*self.name).map_err(self.errno_to_error("link"))
    }

    /// Renames the file to the directory and name of `target`. `flags` are those of renameat2(2).
    pub fn rename(&self, target: &Self, flags: RenameFlags) -> Result<(), Error> {
        renameat2(
            self.dir_fd(),
            &*self.name,
            target.dir_fd(),
            &*target.name,
            flags,
        )
        .map_err(self.errno_to_error("rename"))
    }

    /// Removes the file or symbolic link with this name. The target of a link is kept.
    pub fn remove_file(&self) -> Result<(), Error> {
        unlinkat(self.dir_fd(), &*self.name, UnlinkatFlags::NoRemoveDir)
            .map_err(self.errno_to_error("remove"))
    }

    /// Removes the directory with this name. It must be empty.
    pub fn remove_dir(&self) -> Result<(), Error> {
        unlinkat(self.dir_fd(), &*self.name, UnlinkatFlags::RemoveDir)
            .map_err(self.errno_to_error("remove"))
    }

    /// Removes the file or symbolic link with this name, or the directory and everything in it. It
    /// is not an error if there is nothing with this name.
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

    /// Returns whether the file or directory is a mount point, or contains a mount point. The
    /// kernel does not remove a mount point (EBUSY).
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

    /// Returns whether the file or directory is a mount point. `stat` is its metadata.
    fn is_mount_point(&self, stat: &FileStat) -> Result<bool, Error> {
        let open_how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_XDEV);
        match openat2(self.dir_fd(), &*self.name, open_how) {
            Ok(_) => Ok(false),
            Err(Errno::EXDEV) => Ok(true),
            // Linux before 5.6 does not have openat2, and a seccomp profile may forbid it. The
            // device numbers are compared instead. This does not detect a bind mount from the same
            // file system.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                let parent_stat = fstatat(self.dir_fd(), ".", AtFlags::empty())
                    .map_err(self.errno_to_error("read"))?;
                Ok(parent_stat.st_dev != stat.st_dev)
            }
            Err(errno) => Err(self.errno_to_error("open")(errno)),
        }
    }

    /// Flushes the parent directory to disk, so that a rename in this directory survives a power
    /// failure.
    pub fn sync_dir(&self) -> Result<(), Error> {
        let dir = self.sibling(".").open_dir()?;
        dir.sync_all().map_err(Error::io("flush", &self.dir_path()))
    }

    /// Checks that this process may write to the parent directory.
    ///
    /// # Errors
    /// Fails if the permissions forbid it, or if the file system is mounted read-only.
    pub fn check_dir_writable(&self) -> Result<(), Error> {
        faccessat(self.dir_fd(), ".", AccessFlags::W_OK, AtFlags::AT_EACCESS)
            .map_err(|errno| Error::io("write to", &self.dir_path())(errno.into()))
    }

    /// Returns whether the file system of the parent directory is mounted with the option `noexec`.
    /// No program can be executed there.
    pub fn is_noexec_mount(&self) -> Result<bool, Error> {
        let stat = fstatvfs(self.dir_fd())
            .map_err(|errno| Error::io("read", &self.dir_path())(errno.into()))?;
        Ok(stat.flags().contains(FsFlags::ST_NOEXEC))
    }

    fn dir_path(&self) -> PathBuf {
        self.dirs.iter().map(|dir| &dir.name).collect()
    }

    fn open(&self, flags: OFlag) -> nix::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(self.dir_fd(), &*self.name, flags, Mode::empty()).map(File::from)
    }

    /// Returns a function that turns an errno into an [`Error::Io`], for `map_err`. `action` is the
    /// failed operation as a verb.
    fn errno_to_error(&self, action: &'static str) -> impl FnOnce(Errno) -> Error {
        let path = self.display_path();
        move |errno| Error::io(action, &path)(errno.into())
    }
}
