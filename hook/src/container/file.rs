//! A file that is read and replaced through one resolution.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::{Error, FileKind, Handle, Name, Procfs, Result, WritableDirectory};

/// The mode of directories that are created for a file.
const PARENT_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A file at a path that was resolved once, with a symbolic link at its end
/// followed too: the directory, the name in it, and what has the name.
///
/// Content, owner and mode are those of the file that was found, and its name in
/// that directory is what gets replaced, so that an exchange of links cannot
/// make one file's content appear in another.
#[derive(Debug)]
pub struct WritableFile {
    directory: WritableDirectory,
    /// Directories below it that do not exist yet.
    missing: Vec<OsString>,
    name: OsString,
    found: Option<Handle>,
}

impl WritableFile {
    /// Takes the place of a file. Nothing may be mounted on `found`.
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

    /// The content of the file. None if there is no such file.
    pub fn read(&self, cap: usize) -> Result<Option<Vec<u8>>> {
        let path = self.directory.directory().path().join(&self.name);
        let found = self.found.as_ref();
        found
            .map(|found| read(found, self.directory.proc(), &path, cap))
            .transpose()
    }

    /// Puts a file with the content `bytes` in its place in one step, with the
    /// owner and permissions of the old one; without one it has `mode`.
    pub fn replace(self, bytes: &[u8], mode: Mode) -> Result<()> {
        let directory = self.directory.create_dirs(&self.missing, PARENT_MODE)?;
        directory.replace(Name::new(&self.name)?, self.found.as_ref(), bytes, mode)
    }
}

impl WritableDirectory {
    /// Creates the directories `names`, each in the one before.
    pub(super) fn create_dirs(self, names: &[OsString], mode: Mode) -> Result<Self> {
        names.iter().try_fold(self, |directory, name| {
            directory.create_dir(Name::new(name)?, mode)
        })
    }
}

/// The content of a regular file. Nothing else is ever opened: opening a device
/// of a hostile image could do harm by itself.
pub(super) fn read(found: &Handle, proc: &Procfs, path: &Path, cap: usize) -> Result<Vec<u8>> {
    if found.kind() != FileKind::Regular {
        return Err(Error::WrongKind {
            path: path.to_owned(),
            found: found.kind(),
            wanted: FileKind::Regular,
        });
    }
    // The descriptor leads to the very file that was found.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(proc.reopen(found, flags, path)?);
    // Room for the whole file, so that one read gets it and a second its end.
    let size = usize::try_from(found.stat().st_size).unwrap_or_default();
    let mut bytes = Vec::with_capacity(size.min(cap).saturating_add(1));
    let limit = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
    if let Err(error) = file.take(limit).read_to_end(&mut bytes) {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        return Err(Error::system("read", path, errno));
    }
    if bytes.len() > cap {
        let path = path.to_owned();
        return Err(Error::TooLarge { path, cap });
    }
    Ok(bytes)
}
