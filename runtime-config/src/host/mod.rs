//! A host's file system under any root: `/`, or `/host` in a container.

mod place;
#[cfg(test)]
mod tests;
mod trust;
mod walk;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag};
use rooted_path::LastLink;

use crate::error::Error;

pub use place::Place;
use walk::{Dir, Parents, Reached};

/// Engine configurations are a few kilobytes; nothing larger is read.
const MAX_FILE: u64 = 4 << 20;

/// The root directory that represents the host's `/`.
///
/// Paths given to it are the host's absolute paths. They are resolved one name
/// at a time by directory handles that never leave the root, so that an
/// absolute link on the host leads to the host's file also when the host is
/// mounted at `/host`. What is written is written through the handle at which
/// the resolution ended: no path is resolved a second time.
#[derive(Debug, Clone)]
pub struct HostRoot {
    path: PathBuf,
    root: Dir,
}

impl HostRoot {
    /// A host whose `/` is at `root`.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = root.into();
        let root = Dir::open(&path).map_err(|e| Error::io("open", &path)(e.into()))?;
        Ok(Self { path, root })
    }

    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// Where the host's `path` is to be written, all symbolic links followed.
    /// The file itself need not exist.
    ///
    /// # Errors
    /// A loop of links, a missing directory, or one that others than root can
    /// write to.
    pub fn place(&self, path: &Path) -> Result<Place, Error> {
        self.writable(path, LastLink::Follow)
    }

    /// As [`HostRoot::place`], but a link at `path` is taken as the link that
    /// it is.
    pub fn entry(&self, path: &Path) -> Result<Place, Error> {
        self.writable(path, LastLink::Keep)
    }

    fn writable(&self, path: &Path, last: LastLink) -> Result<Place, Error> {
        match walk::resolve(&self.root, path, last, Parents::Trusted)? {
            Reached::Found(place) => Ok(place),
            Reached::Missing(place, below) if below.is_empty() => Ok(place),
            Reached::Missing(place, _) => Err(Error::io("open", &place.shown())(
                io::ErrorKind::NotFound.into(),
            )),
        }
    }

    /// What is at `path`, to be read only.
    fn find(&self, path: &Path, last: LastLink) -> Result<Option<Place>, Error> {
        match walk::resolve(&self.root, path, last, Parents::Any) {
            Ok(Reached::Found(place)) => Ok(Some(place)),
            Ok(Reached::Missing(..)) => Ok(None),
            // A file where a directory should be: nothing can be below it.
            Err(error) if error.kind() == Some(io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that only root can change what is at `path`: each
    /// directory on the way, as far as it exists, and the last one belong to
    /// root and can be written by no other user or group.
    pub fn check_private(&self, path: &Path) -> Result<(), Error> {
        walk::resolve(&self.root, path, LastLink::Follow, Parents::Private).map(drop)
    }

    /// The metadata of the file at `path`; `None` when there is
    /// none. Links are followed.
    pub fn try_stat(&self, path: &Path) -> Result<Option<FileStat>, Error> {
        self.find(path, LastLink::Follow)?
            .map_or(Ok(None), |place| place.stat())
    }

    /// As [`HostRoot::try_stat`], where an error means the same as no file.
    pub fn stat(&self, path: &Path) -> Option<FileStat> {
        self.try_stat(path).ok().flatten()
    }

    /// Where `path` is, a link at its end kept, to be read only.
    pub fn reach(&self, path: &Path) -> Option<Place> {
        self.find(path, LastLink::Keep).ok()?
    }

    /// Whether something is at `path`; a link that leads nowhere is nothing.
    pub fn exists(&self, path: &Path) -> bool {
        self.stat(path).is_some()
    }

    /// As [`HostRoot::exists`], for what is recorded or written: a path that cannot
    /// be reached may exist.
    pub fn try_exists(&self, path: &Path) -> Result<bool, Error> {
        self.try_stat(path).map(|stat| stat.is_some())
    }

    pub fn is_dir(&self, path: &Path) -> bool {
        self.stat(path).is_some_and(|stat| is_dir(&stat))
    }

    pub fn is_file(&self, path: &Path) -> bool {
        let kind = self
            .stat(path)
            .map(|stat| stat.st_mode & SFlag::S_IFMT.bits());
        kind == Some(SFlag::S_IFREG.bits())
    }

    /// The text of the link at `path`; `None` when there is no link.
    pub fn read_link(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        self.find(path, LastLink::Keep)?
            .map_or(Ok(None), |place| place.read_link().map(Some))
            .or_else(|error| match error.kind() {
                Some(io::ErrorKind::InvalidInput) => Ok(None),
                _ => Err(error),
            })
    }

    /// The text of a file; `None` when there is none.
    pub fn read(&self, path: &Path) -> Result<Option<String>, Error> {
        self.find(path, LastLink::Follow)?
            .map_or(Ok(None), |place| place.read())
    }

    /// The names in a directory, sorted; none when the directory is absent.
    pub fn list(&self, path: &Path) -> Result<Vec<OsString>, Error> {
        match self.find(path, LastLink::Follow)? {
            Some(place) if place.stat()?.is_some_and(|stat| is_dir(&stat)) => place.list(),
            _ => Ok(Vec::new()),
        }
    }

    /// The directories above `path` that do not exist yet, outermost first.
    pub fn missing_dirs(&self, path: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut missing = Vec::new();
        for dir in path.ancestors().skip(1) {
            if self.try_exists(dir)? {
                break;
            }
            missing.push(dir.to_path_buf());
        }
        missing.reverse();
        Ok(missing)
    }
}

fn is_dir(stat: &FileStat) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits()
}

/// Reads an open file, which must be regular.
fn read_text(file: std::fs::File, shown: &Path) -> Result<String, Error> {
    let meta = file.metadata().map_err(Error::io("read", shown))?;
    if !meta.is_file() {
        return Err(Error::not_a_file(shown));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(Error::io("read", shown))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::Other(format!(
            "{} is larger than {MAX_FILE} bytes; this is not an engine's configuration",
            shown.display()
        )));
    }
    String::from_utf8(bytes).map_err(|_| {
        Error::Other(format!(
            "{} is not UTF-8 text; repair it and try again",
            shown.display()
        ))
    })
}

/// The names in a directory, in no order.
fn names(dir: impl AsFd, name: &OsStr, limit: usize) -> nix::Result<Vec<OsString>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = dir::Dir::openat(dir, name, flags, Mode::empty())?;
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
