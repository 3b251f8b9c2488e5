//! Defines handles on files, which are `O_PATH` file descriptors, and the kind and the identity of
//! a file.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, SFlag, fstat};

use crate::rooted_path::{Error, Result};

/// The flags of open(2) that open a handle on a file of any kind and follow symbolic links. The
/// file cannot be read or written through the handle.
pub const HANDLE_FLAGS: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);
/// The flags of open(2) that open a handle on a file of any kind, but do not follow a symbolic link
/// at the end of the path. The handle is then on the link itself.
pub const HANDLE_NOFOLLOW_FLAGS: OFlag = HANDLE_FLAGS.union(OFlag::O_NOFOLLOW);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
    /// A file whose mode does not show its kind, such as an eventfd(2).
    Unknown,
}

impl FileKind {
    pub fn from_stat(stat: &FileStat) -> Self {
        match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => Self::Regular,
            SFlag::S_IFDIR => Self::Directory,
            SFlag::S_IFLNK => Self::Symlink,
            SFlag::S_IFCHR => Self::CharDevice,
            SFlag::S_IFBLK => Self::BlockDevice,
            SFlag::S_IFIFO => Self::Fifo,
            SFlag::S_IFSOCK => Self::Socket,
            _ => Self::Unknown,
        }
    }

    /// Returns whether the file is a character or block device node.
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::CharDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Unknown => "a file of an unknown kind",
        })
    }
}

/// The numbers that identify a file: the number of its file system, its inode number, and the
/// device number if the file is a device node. A new file can have the same numbers as a file that
/// was removed, because inode numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    dev: u64,
    ino: u64,
    rdev: u64,
}

impl Identity {
    pub fn from_stat(stat: &FileStat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            rdev: stat.st_rdev,
        }
    }

    /// Returns the numbers of the file system, of the inode and of the device, in this order. The
    /// device number is 0 if the file is not a device node.
    pub fn numbers(self) -> [u64; 3] {
        [self.dev, self.ino, self.rdev]
    }

    /// Returns whether the inode of the file has this number, whatever the file system is.
    pub fn has_inode_number(self, number: u64) -> bool {
        self.ino == number
    }
}

/// An `O_PATH` descriptor of a file, and the metadata that the file had when the descriptor was
/// opened. The descriptor refers to the same file even if the file is renamed or removed.
#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
    stat: FileStat,
}

impl Handle {
    /// Creates a handle from a descriptor, and reads the metadata of the file. `path` is only used
    /// in the error message.
    pub fn new(fd: OwnedFd, path: &Path) -> Result<Self> {
        match fstat(&fd) {
            Ok(stat) => Ok(Self { fd, stat }),
            Err(errno) => Err(Error::system("read the metadata of", path, errno)),
        }
    }

    pub fn kind(&self) -> FileKind {
        FileKind::from_stat(&self.stat)
    }

    pub fn identity(&self) -> Identity {
        Identity::from_stat(&self.stat)
    }

    /// Returns the metadata that was read when the handle was opened. It may have changed since.
    pub fn stat(&self) -> &FileStat {
        &self.stat
    }

    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
