//! A file that is read and replaced after its path was resolved once.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use rooted_path::RegularFile;

use super::{Error, FileKind, Handle, Name, Procfs, Result, WritableDirectory};

/// The mode of directories that are created on the way to a file.
const PARENT_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A file whose path was resolved once, with a symbolic link at the end followed too. The
/// value holds the directory, the name in it, and the file that had this name.
///
/// The content, the owner and the mode are read from that file, and the name in that directory
/// is what a replacement changes. An exchange of links in between therefore cannot make the
/// content of one file appear in another.
#[derive(Debug)]
pub struct WritableFile {
    directory: WritableDirectory,
    /// The names of directories below `directory` that do not exist yet.
    missing: Vec<OsString>,
    name: OsString,
    found: Option<Handle>,
}

impl WritableFile {
    /// Holds the result of a path resolution. Fails if something is mounted on `found`.
    pub(super) fn new(
        directory: WritableDirectory,
        missing: Vec<OsString>,
        name: OsString,
        found: Option<Handle>,
    ) -> Result<Self> {
        if let Some(found) = &found {
            directory.check_mount(found, &directory.directory().path().join(&name))?;
        }
        Ok(Self {
            directory,
            missing,
            name,
            found,
        })
    }

    /// Reads the file, which must not be larger than `cap` bytes. Returns `None` if it does
    /// not exist.
    pub fn read(&self, cap: usize) -> Result<Option<Vec<u8>>> {
        let path = self.directory.directory().path().join(&self.name);
        let found = self.found.as_ref();
        found
            .map(|found| read(found, self.directory.proc(), &path, cap))
            .transpose()
    }

    /// Replaces the file atomically by one with the content `bytes`. The new file has the
    /// owner and permissions of the old one, or `mode` if there was none.
    pub fn replace(self, bytes: &[u8], mode: Mode) -> Result<()> {
        let directory = self.directory.create_dirs(&self.missing, PARENT_MODE)?;
        directory.replace(Name::new(&self.name)?, self.found.as_ref(), bytes, mode)
    }
}

impl WritableDirectory {
    /// Creates the directories `names`, each inside the previous one.
    pub(super) fn create_dirs(self, names: &[OsString], mode: Mode) -> Result<Self> {
        names.iter().try_fold(self, |directory, name| {
            directory.create_dir(Name::new(name)?, mode)
        })
    }
}

/// Reads a regular file. A file of another kind is refused before it is opened, because
/// opening a device node in a hostile image could already do harm.
pub(super) fn read(found: &Handle, proc: &Procfs, path: &Path, cap: usize) -> Result<Vec<u8>> {
    if found.kind() != FileKind::Regular {
        return Err(Error::WrongKind {
            path: path.to_owned(),
            found: found.kind(),
            wanted: FileKind::Regular,
        });
    }
    // Reopening the handle leads to the same file, whatever its name leads to now.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(proc.reopen(found, flags, path)?);
    let limit = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
    let bytes = RegularFile::new(file, found.stat())
        .read(limit)
        .map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Error::system("read", path, errno)
        })?;
    if bytes.len() > cap {
        let path = path.to_owned();
        return Err(Error::TooLarge { path, cap });
    }
    Ok(bytes)
}
