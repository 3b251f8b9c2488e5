//! Access to the file system of a host. The root of the host is `/`, or in a container a directory
//! such as `/host`.

mod entry;
mod open_dir;
#[cfg(test)]
mod tests;
mod trust;
mod walk;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use host_files::rooted_path::TrailingSymlink;
use nix::dir;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag};

use crate::error::Error;

pub use entry::HostEntry;
use open_dir::OpenDir;
use walk::{DirectoryPolicy, ResolvedEntry};

/// The maximum size in bytes of a file that is read. A larger file is an error. The configuration
/// files of engines have a few kilobytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The directory that is the root of the host: `/`, or in a container a directory such as `/host`.
///
/// All paths are absolute paths of the host. They are resolved one component at a time, and never
/// lead out of the root. So an absolute symbolic link leads to the host's file even if the host is
/// mounted at `/host`.
///
/// A file is written through the open directory at the end of the resolution. No path is resolved a
/// second time, so another process cannot replace a directory between a check and a write.
#[derive(Debug, Clone)]
pub struct HostRoot {
    path: PathBuf,
    root: OpenDir,
}

impl HostRoot {
    /// Opens the host whose root directory is `root`.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = root.into();
        let root = OpenDir::open(&path).map_err(|e| Error::io("open", &path)(e.into()))?;
        Ok(Self { path, root })
    }

    /// Returns the path of the host's root directory, as this process sees it.
    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// Resolves a path for writing, and follows all symbolic links. The file itself need not exist.
    ///
    /// # Errors
    /// Fails if the links form a loop, if a directory is missing, or if a user other than root
    /// can write to a directory of the path.
    pub fn resolve(&self, path: &Path) -> Result<HostEntry, Error> {
        self.resolve_for_writing(path, TrailingSymlink::Follow)
    }

    /// Resolves a path like [`HostRoot::resolve`], but does not follow a symbolic link at the end
    /// of `path`.
    pub fn resolve_nofollow(&self, path: &Path) -> Result<HostEntry, Error> {
        self.resolve_for_writing(path, TrailingSymlink::NoFollow)
    }

    fn resolve_for_writing(
        &self,
        path: &Path,
        trailing_symlink: TrailingSymlink,
    ) -> Result<HostEntry, Error> {
        match walk::resolve(&self.root, path, trailing_symlink, DirectoryPolicy::Trusted)? {
            ResolvedEntry::Found(entry) => Ok(entry),
            ResolvedEntry::Missing(entry, names_below) if names_below.is_empty() => Ok(entry),
            ResolvedEntry::Missing(entry, _) => Err(Error::io("open", &entry.display_path())(
                io::ErrorKind::NotFound.into(),
            )),
        }
    }

    /// Resolves a path for reading. Returns `None` if the file does not exist. The owners of the
    /// directories are not checked, because nothing is written.
    fn resolve_for_reading(
        &self,
        path: &Path,
        trailing_symlink: TrailingSymlink,
    ) -> Result<Option<HostEntry>, Error> {
        match walk::resolve(&self.root, path, trailing_symlink, DirectoryPolicy::Any) {
            Ok(ResolvedEntry::Found(entry)) => Ok(Some(entry)),
            Ok(ResolvedEntry::Missing(..)) => Ok(None),
            // A component of the path is a file, so there can be nothing below it.
            Err(error) if error.kind() == Some(io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that only root can change the file or directory at `path`. The file and each existing
    /// directory on the path must belong to root. No other user and no group may have write access.
    pub fn check_root_only_writable(&self, path: &Path) -> Result<(), Error> {
        walk::resolve(
            &self.root,
            path,
            TrailingSymlink::Follow,
            DirectoryPolicy::Private,
        )
        .map(drop)
    }

    /// Returns the metadata of the file at `path`, or `None` if there is no file. Symbolic links
    /// are followed.
    pub fn try_stat(&self, path: &Path) -> Result<Option<FileStat>, Error> {
        self.resolve_for_reading(path, TrailingSymlink::Follow)?
            .map_or(Ok(None), |entry| entry.stat())
    }

    /// Returns the metadata of the file at `path`. Returns `None` if there is no file or an error
    /// occurs.
    pub fn stat(&self, path: &Path) -> Option<FileStat> {
        self.try_stat(path).ok().flatten()
    }

    /// Resolves a path for reading, without following a symbolic link at its end. Returns `None` if
    /// there is no file or an error occurs.
    pub fn find_entry(&self, path: &Path) -> Option<HostEntry> {
        self.resolve_for_reading(path, TrailingSymlink::NoFollow)
            .ok()?
    }

    /// Returns whether a file or directory exists at `path`. Returns `false` if an error occurs, or
    /// if `path` is a symbolic link that leads to nothing.
    pub fn exists(&self, path: &Path) -> bool {
        self.stat(path).is_some()
    }

    /// Returns whether a file or directory exists at `path`. Unlike [`HostRoot::exists`], reports
    /// errors: some callers must not mistake an unreadable path for an absent file.
    pub fn try_exists(&self, path: &Path) -> Result<bool, Error> {
        self.try_stat(path).map(|stat| stat.is_some())
    }

    /// Returns whether a directory is at `path`. Symbolic links are followed. Returns `false` if an
    /// error occurs.
    pub fn is_dir(&self, path: &Path) -> bool {
        self.stat(path).is_some_and(|stat| is_dir(&stat))
    }

    /// Returns whether a regular file is at `path`. Symbolic links are followed. Returns `false` if
    /// an error occurs.
    pub fn is_file(&self, path: &Path) -> bool {
        let file_type = self
            .stat(path)
            .map(|stat| stat.st_mode & SFlag::S_IFMT.bits());
        file_type == Some(SFlag::S_IFREG.bits())
    }

    /// Returns the target of the symbolic link at `path`, or `None` if there is no link.
    pub fn read_link(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        self.resolve_for_reading(path, TrailingSymlink::NoFollow)?
            .map_or(Ok(None), |entry| entry.read_link().map(Some))
            .or_else(|error| match error.kind() {
                Some(io::ErrorKind::InvalidInput) => Ok(None),
                _ => Err(error),
            })
    }

    /// Returns the text of a file, or `None` if the file does not exist. A file that is larger than
    /// 4 MiB or is not UTF-8 is an error.
    pub fn read(&self, path: &Path) -> Result<Option<String>, Error> {
        self.resolve_for_reading(path, TrailingSymlink::Follow)?
            .map_or(Ok(None), |entry| entry.read())
    }

    /// Returns the sorted names of the files in a directory. The list is empty if there is no
    /// directory.
    pub fn list(&self, path: &Path) -> Result<Vec<OsString>, Error> {
        match self.resolve_for_reading(path, TrailingSymlink::Follow)? {
            Some(entry) if entry.stat()?.is_some_and(|stat| is_dir(&stat)) => entry.list(),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the directories above `path` that do not exist, the outermost first.
    pub fn find_missing_dirs(&self, path: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut missing_dirs = Vec::new();
        for dir in path.ancestors().skip(1) {
            if self.try_exists(dir)? {
                break;
            }
            missing_dirs.push(dir.to_path_buf());
        }
        missing_dirs.reverse();
        Ok(missing_dirs)
    }
}

fn is_dir(stat: &FileStat) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits()
}

/// Reads the text of an open file. `display_path` is the path of the file in error messages.
///
/// # Errors
/// Fails if the file is not a regular file, is larger than [`MAX_FILE_BYTES`], or is not UTF-8.
fn read_text(file: std::fs::File, display_path: &Path) -> Result<String, Error> {
    let metadata = file.metadata().map_err(Error::io("read", display_path))?;
    if !metadata.is_file() {
        return Err(Error::new_not_regular_file(display_path));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(Error::io("read", display_path))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Error::Other(format!(
            "{} is larger than {MAX_FILE_BYTES} bytes; this is not an engine's configuration",
            display_path.display()
        )));
    }
    String::from_utf8(bytes).map_err(|_| {
        Error::Other(format!(
            "{} is not UTF-8 text; repair it and try again",
            display_path.display()
        ))
    })
}

/// Returns the names of at most `limit` files in the directory `dir_name`, which is in the open
/// directory `parent`. The names are not sorted.
fn list_names(parent: impl AsFd, dir_name: &OsStr, limit: usize) -> nix::Result<Vec<OsString>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = dir::Dir::openat(parent, dir_name, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if names.len() == limit {
            break;
        }
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}
