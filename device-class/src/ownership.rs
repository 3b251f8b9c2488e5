//! Checks who can change a file. Class files, config.toml and the programs that they name decide
//! what runs as root, so such a file is used only if root alone can change it.
//!
//! The rule, for the file, for each directory on the way to it and for each
//! symbolic link on the way: the owner is root or the user of this process, and
//! only root has write permission. A directory in which others can write must
//! have the sticky bit, like /tmp: there they cannot rename or remove an entry
//! that is root's. Nothing on a read-only mount can be written (a ConfigMap is
//! such a mount, and its directory has the mode 0777).
//!
//! The rule for files of the host that a container gets is weaker, since a daemon may own its
//! socket and the socket's directory; see [`Tree`].
//!
//! Each check reads the metadata of an open descriptor, and the next name of the path is opened
//! relative to that descriptor. Therefore the file that was checked is also the file that is read,
//! even if the path changes meanwhile.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{self, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use rooted_path::{
    FileKind, Handle, LastLink, RegularFile, Resolver, RootDir, Walk, is_root_or_this_user,
    not_regular, path_below,
};

const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The reason why a file cannot be trusted or opened.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// The file belongs to a user other than root.
    #[error(
        "{} belongs to uid {uid}, who could change what runs as root; run: chown root: {}",
        path.display(),
        path.display()
    )]
    Owner {
        /// The file, or a directory or link on the way to it.
        path: PathBuf,
        uid: u32,
    },
    /// The mode of the file allows users other than its owner to write.
    #[error(
        "{} has mode {mode:04o}, so others could change what runs as root; run: chmod go-w {}",
        path.display(),
        path.display()
    )]
    Writable {
        /// The file, or a directory on the way to it.
        path: PathBuf,
        mode: u32,
    },
    /// Every user of the host can create files in the directory.
    #[error("{} is writable by every user of the host (mode {mode:04o})", path.display())]
    Shared { path: PathBuf, mode: u32 },
    /// Users other than root can create or replace a symbolic link on the path.
    #[error(
        "{} is a symbolic link that others than root can replace: give the link and its \
         directory to root, with write permission for root only",
        path.display()
    )]
    Link { path: PathBuf },
    /// The file has several hard links, in a directory where users other than root can create
    /// names. Such a user may have linked any file of root to this path.
    #[error(
        "{} is one of several names (hard links) of a file, in a directory in which others than \
         root can make names: copy the file",
        path.display()
    )]
    Names { path: PathBuf },
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// The file, or a directory on the way to it.
        path: PathBuf,
        error: io::Error,
    },
}

impl OwnershipError {
    /// Returns whether the file or a directory on the way to it does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, OwnershipError::Open { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Describes the error without the path of `file`, for a message that has it already.
    pub(crate) fn describe_without_path(&self, file: &Path) -> String {
        match self {
            OwnershipError::Open { path, error } if path == file => {
                format!("cannot be opened: {error}")
            }
            _ => {
                let text = self.to_string();
                let named = format!("{} ", file.display());
                text.strip_prefix(&named).unwrap_or(&text).to_owned()
            }
        }
    }

    pub(crate) fn open(path: &Path, error: impl Into<io::Error>) -> Self {
        OwnershipError::Open {
            path: path.into(),
            error: error.into(),
        }
    }

    /// Converts an error of the lookup. The result never has the kind `NotFound`, which would
    /// mean that the file does not exist.
    fn failed(path: &Path, error: rooted_path::Error) -> Self {
        let error = match error.errno() {
            nix::Error::ENOENT => io::Error::other(error),
            errno => errno.into(),
        };
        OwnershipError::open(path, error)
    }
}

/// Opens a regular file for reading, if only root can change it.
pub fn open(path: &Path) -> Result<RegularFile, OwnershipError> {
    let found = walk(Path::new("/"), &absolute(path)?)?;
    check_regular(&found.handle, path)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let checked = format!("/proc/self/fd/{}", found.handle.as_fd().as_raw_fd());
    let file = fcntl::open(checked.as_str(), flags, Mode::empty())
        .map_err(|error| OwnershipError::open(path, error))?;
    Ok(RegularFile::new(file.into(), found.handle.stat()))
}

/// Returns the path without links of a program in the tree at `root`, if only root can change
/// the program.
pub fn program(root: &Path, path: &Path) -> Result<PathBuf, OwnershipError> {
    let found = walk(Path::new("/"), &absolute(root)?)?;
    Ok(walk(&found.path, path)?.path)
}

/// Checks that only root can change a file.
pub fn check(path: &Path) -> Result<(), OwnershipError> {
    walk(Path::new("/"), &absolute(path)?).map(|_| ())
}

/// An open directory that only root can change, such as a directory of class files.
#[derive(Debug)]
pub struct Directory {
    found: LocatedFile,
}

impl Directory {
    /// Opens a directory that root alone can change.
    pub fn open(path: &Path) -> Result<Self, OwnershipError> {
        let found = walk(Path::new("/"), &absolute(path)?)?;
        Ok(Directory { found })
    }

    /// Opens a regular file in the directory, which root alone can change as well. Links are
    /// followed.
    pub fn file(&self, name: &OsStr) -> Result<RegularFile, OwnershipError> {
        self.own_file(name).or_else(|error| match &error {
            OwnershipError::Open { path, error } if is_link(error) => open(path),
            _ => Err(error),
        })
    }

    fn own_file(&self, name: &OsStr) -> Result<RegularFile, OwnershipError> {
        let path = self.found.path.join(name);
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        match openat(&self.found.handle, name, flags, Mode::empty()) {
            Ok(file) => {
                let failed = |error| OwnershipError::failed(&path, error);
                let file = Handle::new(file, &path).map_err(failed)?;
                check_root_only(&file, || path.clone())?;
                check_regular(&file, &path)?;
                let stat = *file.stat();
                Ok(RegularFile::new(file.into_fd().into(), &stat))
            }
            Err(nix::Error::ENXIO) => {
                let error = not_regular(FileKind::Socket);
                Err(OwnershipError::open(&path, error))
            }
            Err(error) => Err(OwnershipError::open(&path, error)),
        }
    }
}

/// Returns whether the error means that the file is a symbolic link (`ELOOP` of `O_NOFOLLOW`).
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::Error::ELOOP as i32)
}

#[derive(Debug)]
struct LocatedFile {
    handle: Handle,
    path: PathBuf,
}

/// Checks that root alone can change the file.
fn check_root_only(file: &Handle, path: impl FnOnce() -> PathBuf) -> Result<(), OwnershipError> {
    let (uid, mode) = (file.stat().st_uid, mode(file));
    if !is_root_or_this_user(uid) {
        return Err(OwnershipError::Owner { path: path(), uid });
    }
    let is_writable = match file.kind() {
        FileKind::Symlink => false,
        FileKind::Directory if mode & STICKY != 0 => false,
        _ => mode & GROUP_OR_OTHERS_WRITE != 0,
    };
    if is_writable && !is_on_read_only_mount(file) {
        return Err(OwnershipError::Writable { path: path(), mode });
    }
    Ok(())
}

/// Checks that the file is a regular file. A pipe or a device would be read as an empty file.
fn check_regular(file: &Handle, path: &Path) -> Result<(), OwnershipError> {
    match file.kind() {
        FileKind::Regular => Ok(()),
        kind => Err(OwnershipError::open(path, not_regular(kind))),
    }
}

fn mode(file: &Handle) -> u32 {
    file.stat().st_mode & 0o7777
}

fn is_on_read_only_mount(file: &Handle) -> bool {
    fstatvfs(file).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_RDONLY))
}

/// Follows `path` in the tree at `root`, and checks each directory and link on the path.
fn walk(root: &Path, path: &Path) -> Result<LocatedFile, OwnershipError> {
    let top = RootDir::open(root, Resolver::Walk).and_then(|top| top.into_handle(root));
    let top = top.map_err(|error| OwnershipError::open(root, error))?;
    check_root_only(&top, || root.to_owned())?;
    let failed = |error| OwnershipError::failed(path, error);
    let mut walk = Walk::new(top.as_fd(), path, LastLink::Follow).map_err(failed)?;
    while let Some(step) = walk.step().map_err(failed)? {
        check_root_only(&step.found.handle, || step.path(root))?;
    }
    let mut end = walk.finish().map_err(failed)?;
    let path = path_below(root, &end.trail);
    let handle = end.trail.pop().map_or(top, |last| last.handle);
    match end.missing.first() {
        None => Ok(LocatedFile { handle, path }),
        Some(name) => Err(OwnershipError::open(&path.join(name), nix::Error::ENOENT)),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, OwnershipError> {
    std::path::absolute(path).map_err(|error| OwnershipError::open(path, error))
}

mod tree;

pub use tree::{Tree, TreeFile};

#[cfg(test)]
mod tests;
