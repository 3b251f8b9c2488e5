//! Reads and replaces files in a container. The path of a file is resolved only once for both
//! operations. So the container cannot put another file at the path between the read and the
//! replacement.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use host_files::rooted_path::RegularFile;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::{Error, FileKind, FileName, Handle, Procfs, Result, WritableDirectory};

/// The mode of the parent directories that are created for a new file: all users can read them.
const PARENT_MODE: Mode = Mode::from_bits_truncate(0o755);

/// A file in a container that the hook can read and replace. The value has a handle on the file and
/// a handle on its directory. If the path was a symbolic link, this is the link's target.
///
/// The old content, owner and mode are read through the handle on the file. A replacement renames a
/// new file in the open directory. So a process of the container cannot redirect the replacement to
/// another file by changing symbolic links in the meantime.
#[derive(Debug)]
pub struct WritableFile {
    directory: WritableDirectory,
    /// The names of the directories of the path that do not exist yet. When the file is written,
    /// they are created in `directory`, each inside the previous one.
    missing_directories: Vec<OsString>,
    name: OsString,
    old_file: Option<Handle>,
}

impl WritableFile {
    /// Creates the value from a resolved path. `old_file` is the existing file at the path. Fails
    /// if `old_file` is a mount point, because the mounted file may belong to the host or to
    /// another container.
    pub(super) fn new(
        directory: WritableDirectory,
        missing_directories: Vec<OsString>,
        name: OsString,
        old_file: Option<Handle>,
    ) -> Result<Self> {
        if let Some(old_file) = &old_file {
            directory.refuse_mount_point(old_file, &directory.directory().path().join(&name))?;
        }
        Ok(Self {
            directory,
            missing_directories,
            name,
            old_file,
        })
    }

    /// Reads the content of the file. Fails if it is larger than `max_bytes`. Returns `None` if the
    /// file did not exist when its path was resolved.
    pub fn read(&self, max_bytes: usize) -> Result<Option<Vec<u8>>> {
        let path = self.directory.directory().path().join(&self.name);
        self.old_file
            .as_ref()
            .map(|old_file| read_regular_file(old_file, self.directory.procfs(), &path, max_bytes))
            .transpose()
    }

    /// Replaces the file atomically by a new file with the content `bytes`. The new file has the
    /// owner and the permissions of the old file. If there was no old file, the new file has the
    /// mode `mode`.
    pub fn replace(self, bytes: &[u8], mode: Mode) -> Result<()> {
        let directory = self
            .directory
            .create_dirs(&self.missing_directories, PARENT_MODE)?;
        directory.replace(
            FileName::new(&self.name)?,
            self.old_file.as_ref(),
            bytes,
            mode,
        )
    }
}

impl WritableDirectory {
    /// Creates nested directories with the given names, such as `a` and `b` for `a/b`. Returns the
    /// innermost directory.
    pub(super) fn create_dirs(self, names: &[OsString], mode: Mode) -> Result<Self> {
        names.iter().try_fold(self, |directory, name| {
            directory.create_dir(FileName::new(name)?, mode)
        })
    }
}

/// Reads a regular file. Fails if it has more than `max_bytes` bytes. `path` is only used in
/// messages.
///
/// Only regular files are opened for reading, because the image may be hostile. For example, it may
/// have a device node in place of the file, and opening the node could change the state of the
/// device.
pub(super) fn read_regular_file(
    handle: &Handle,
    procfs: &Procfs,
    path: &Path,
    max_bytes: usize,
) -> Result<Vec<u8>> {
    if handle.kind() != FileKind::Regular {
        return Err(Error::WrongKind {
            path: path.to_owned(),
            found_kind: handle.kind(),
            expected_kind: FileKind::Regular,
        });
    }
    // The handle is reopened through `/proc/self/fd`. This leads to the same file even if another
    // file has its name now.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(procfs.reopen(handle, flags, path)?);
    let read_limit = u64::try_from(max_bytes)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let bytes = RegularFile::new(file, handle.stat())
        .read(read_limit)
        .map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Error::system("read", path, errno)
        })?;
    if bytes.len() > max_bytes {
        let path = path.to_owned();
        return Err(Error::TooLarge { path, max_bytes });
    }
    Ok(bytes)
}
