//! Checks which users can change a file. Class files, config.toml and the programs that they name
//! decide what runs as root. Therefore such a file is used only if nobody but root can change it.
//!
//! The file, each directory on its path and each symbolic link on its path must belong to root or
//! to the user of this process, and only the owner may have write permission. A directory may be
//! writable for other users if it has the sticky bit, as /tmp has: there they cannot rename or
//! remove root's files. On a read-only mount the mode is not checked, because nothing can be
//! written there. A ConfigMap is such a mount, and its directory has the mode 0777.
//!
//! For host files that are mounted into a container, the rules are weaker, because a daemon may own
//! its socket and the socket's directory. [`TrustedTree`] has these rules.
//!
//! Each check reads the metadata of an open file descriptor, and the next component of the path is
//! opened relative to this descriptor. Therefore the file that is read is the file that was
//! checked, even if somebody changes the path in between.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use host_files::rooted_path;
use host_files::rooted_path::{
    FileKind, Handle, RegularFile, Resolver, RootDir, TrailingSymlink, Walk, is_root_or_this_user,
    join_component_names, not_regular_error,
};
use nix::fcntl::{self, AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstatat};
use nix::sys::statvfs::{FsFlags, fstatvfs};

const GROUP_OR_OTHERS_WRITE_MODE: u32 = 0o022;
const STICKY_MODE: u32 = 0o1000;

/// The reason why a file cannot be opened, or why users other than root could change it.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// The file belongs to a user other than root, who can change it at any time.
    #[error(
        "{} belongs to uid {uid}, who could change what runs as root; run: chown root: {}",
        path.display(),
        path.display()
    )]
    ForeignOwner {
        /// The path of the file itself, or of a directory or link on the path to it.
        path: PathBuf,
        uid: u32,
    },
    /// The mode of the file gives write permission to users other than the file's owner, as 0664
    /// does.
    #[error(
        "{} has mode {mode:04o}, so others could change what runs as root; run: chmod go-w {}",
        path.display(),
        path.display()
    )]
    Writable {
        /// The path of the file itself, or of a directory on the path to it.
        path: PathBuf,
        mode: u32,
    },
    /// Every user of the host can create files in the directory, as in /tmp.
    #[error("{} is writable by every user of the host (mode {mode:04o})", path.display())]
    WorldWritable { path: PathBuf, mode: u32 },
    /// Users other than root can create or replace a symbolic link on the path.
    #[error(
        "{} is a symbolic link that others than root can replace: give the link and its \
         directory to root, with write permission for root only",
        path.display()
    )]
    ReplaceableLink { path: PathBuf },
    /// The file has several hard links, and users other than root can create files in its
    /// directory. Such a user may have created this path as a hard link to any file of root.
    #[error(
        "{} is one of several names (hard links) of a file, in a directory in which others than \
         root can make names: copy the file",
        path.display()
    )]
    HardLinks { path: PathBuf },
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// The path of the file itself, or of a directory on the path to it.
        path: PathBuf,
        error: io::Error,
    },
}

impl OwnershipError {
    /// Returns whether the reason is that the file, or a directory on its path, does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, OwnershipError::Open { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Describes the error without the path of `file`, for a message that already contains the
    /// path.
    pub(crate) fn describe_without_path(&self, file: &Path) -> String {
        match self {
            OwnershipError::Open { path, error } if path == file => {
                format!("cannot be opened: {error}")
            }
            _ => {
                let text = self.to_string();
                let prefix = format!("{} ", file.display());
                text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
            }
        }
    }

    pub(crate) fn from_open_error(path: &Path, error: impl Into<io::Error>) -> Self {
        OwnershipError::Open {
            path: path.into(),
            error: error.into(),
        }
    }

    /// Converts an error that does not mean a missing file. The result never has the kind
    /// `NotFound`, so that callers do not treat the file as absent.
    fn from_walk_error(path: &Path, error: rooted_path::Error) -> Self {
        let error = match error.errno() {
            nix::Error::ENOENT => io::Error::other(error),
            errno => errno.into(),
        };
        OwnershipError::from_open_error(path, error)
    }
}

/// Opens a regular file for reading. Fails if users other than root can change the file.
pub fn open_trusted_file(path: &Path) -> Result<RegularFile, OwnershipError> {
    let located_file = walk_path(Path::new("/"), &to_absolute(path)?)?;
    check_regular(&located_file.handle, path)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    open_again(&located_file.handle, flags, path)
}

/// Opens the file of a handle again, through /proc/self/fd, with these flags of open(2). So the
/// opened file is the one that was checked. Errors name `path`.
fn open_again(handle: &Handle, flags: OFlag, path: &Path) -> Result<RegularFile, OwnershipError> {
    let handle_path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    let file = fcntl::open(handle_path.as_str(), flags, Mode::empty())
        .map_err(|error| OwnershipError::from_open_error(path, error))?;
    Ok(RegularFile::new(file.into(), handle.stat()))
}

/// Returns the path, with symbolic links resolved, of a program in the directory tree at `root`.
/// Fails if users other than root can change the program.
pub fn resolve_trusted_program(root: &Path, path: &Path) -> Result<PathBuf, OwnershipError> {
    let root = walk_path(Path::new("/"), &to_absolute(root)?)?;
    Ok(walk_path(&root.path, path)?.path)
}

/// Checks a file. Fails if users other than root can change it, or a directory or link on its path.
pub fn check_trusted_file(path: &Path) -> Result<(), OwnershipError> {
    walk_path(Path::new("/"), &to_absolute(path)?).map(|_| ())
}

/// An open directory that only root can change, such as a directory of class files.
#[derive(Debug)]
pub struct TrustedDirectory {
    located_dir: LocatedFile,
}

impl TrustedDirectory {
    /// Opens a directory. Fails if users other than root can change it, or a directory or link on
    /// its path.
    pub fn open(path: &Path) -> Result<Self, OwnershipError> {
        let located_dir = walk_path(Path::new("/"), &to_absolute(path)?)?;
        Ok(TrustedDirectory { located_dir })
    }

    /// Opens a regular file in the directory, following symbolic links. Fails if users other than
    /// root can change the file.
    pub fn open_file(&self, name: &OsStr) -> Result<RegularFile, OwnershipError> {
        self.open_without_links(name).or_else(|error| match &error {
            OwnershipError::Open { path, error } if is_link(error) => open_trusted_file(path),
            _ => Err(error),
        })
    }

    /// Returns the metadata of a regular file in the directory without opening the file. Returns
    /// `None` for any other kind of file, such as a symbolic link, and if users other than root can
    /// change the file.
    pub(crate) fn stat_file(&self, name: &OsStr) -> Option<FileStat> {
        let directory = &self.located_dir.handle;
        let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let is_trusted = FileKind::from_stat(&stat) == FileKind::Regular
            && is_root_or_this_user(stat.st_uid)
            && stat.st_mode & GROUP_OR_OTHERS_WRITE_MODE == 0;
        is_trusted.then_some(stat)
    }

    fn open_without_links(&self, name: &OsStr) -> Result<RegularFile, OwnershipError> {
        let path = self.located_dir.path.join(name);
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        match openat(&self.located_dir.handle, name, flags, Mode::empty()) {
            Ok(file) => {
                let to_error = |error| OwnershipError::from_walk_error(&path, error);
                let file = Handle::new(file, &path).map_err(to_error)?;
                check_root_only(&file, || path.clone())?;
                check_regular(&file, &path)?;
                let stat = *file.stat();
                Ok(RegularFile::new(file.into_fd().into(), &stat))
            }
            Err(nix::Error::ENXIO) => {
                let error = not_regular_error(FileKind::Socket);
                Err(OwnershipError::from_open_error(&path, error))
            }
            Err(error) => Err(OwnershipError::from_open_error(&path, error)),
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

/// Checks one file, directory or symbolic link: it must belong to root or to the user of this
/// process, and other users must not be able to change it. `path` returns its path for the error.
fn check_root_only(file: &Handle, path: impl FnOnce() -> PathBuf) -> Result<(), OwnershipError> {
    let (uid, mode) = (file.stat().st_uid, mode_bits(file));
    if !is_root_or_this_user(uid) {
        return Err(OwnershipError::ForeignOwner { path: path(), uid });
    }
    let is_writable = match file.kind() {
        FileKind::Symlink => false,
        FileKind::Directory if mode & STICKY_MODE != 0 => false,
        _ => mode & GROUP_OR_OTHERS_WRITE_MODE != 0,
    };
    if is_writable && !is_on_read_only_mount(file) {
        return Err(OwnershipError::Writable { path: path(), mode });
    }
    Ok(())
}

/// Checks that a file is a regular file. Other kinds are refused, because reading a pipe or a
/// device could block or have side effects.
fn check_regular(file: &Handle, path: &Path) -> Result<(), OwnershipError> {
    check_regular_kind(file.kind(), path)
}

fn check_regular_kind(kind: FileKind, path: &Path) -> Result<(), OwnershipError> {
    match kind {
        FileKind::Regular => Ok(()),
        kind => Err(OwnershipError::from_open_error(
            path,
            not_regular_error(kind),
        )),
    }
}

fn mode_bits(file: &Handle) -> u32 {
    file.stat().st_mode & 0o7777
}

fn is_on_read_only_mount(file: &Handle) -> bool {
    fstatvfs(file).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_RDONLY))
}

/// Follows `path` inside the directory tree at `root`. Checks that only root can change each
/// directory and symbolic link on the path, and the file at its end.
fn walk_path(root: &Path, path: &Path) -> Result<LocatedFile, OwnershipError> {
    let root_handle = RootDir::open(root, Resolver::Walk).and_then(|dir| dir.into_handle(root));
    let root_handle = root_handle.map_err(|error| OwnershipError::from_open_error(root, error))?;
    check_root_only(&root_handle, || root.to_owned())?;
    let to_error = |error| OwnershipError::from_walk_error(path, error);
    let mut walk =
        Walk::new(root_handle.as_fd(), path, TrailingSymlink::Follow).map_err(to_error)?;
    while let Some(step) = walk.step().map_err(to_error)? {
        check_root_only(&step.file.handle, || step.path(root))?;
    }
    let mut result = walk.finish().map_err(to_error)?;
    let path = join_component_names(root, &result.opened_components);
    let handle = result
        .opened_components
        .pop()
        .map_or(root_handle, |last| last.handle);
    match result.missing_names.first() {
        None => Ok(LocatedFile { handle, path }),
        Some(name) => Err(OwnershipError::from_open_error(
            &path.join(name),
            nix::Error::ENOENT,
        )),
    }
}

fn to_absolute(path: &Path) -> Result<PathBuf, OwnershipError> {
    std::path::absolute(path).map_err(|error| OwnershipError::from_open_error(path, error))
}

mod tree;

pub use tree::{TreeFile, TrustedTree};

#[cfg(test)]
mod tests;
