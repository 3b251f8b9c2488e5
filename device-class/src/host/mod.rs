//! The interface through which a scan reads the files of a host. The host is the real one, or one
//! that was recorded in a text file.

mod groups;
mod real;
mod recorded;
mod recording;
mod view;

use std::io;
use std::path::{Path, PathBuf};

use crate::ownership::OwnershipError;

pub use crate::device::{DeviceKind, DeviceNumber};
pub use groups::GROUP_FILE_PATH;
pub use real::RealHost;
pub use recorded::{RecordedHost, RecordedHostError};
pub use recording::HostRecorder;
pub use view::HostViewCow;

/// The maximum number of bytes that are read from a file for an attribute. A file in sysfs has at
/// most one memory page, and the files in procfs that classes read are also smaller than this
/// limit.
pub const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// The maximum size in bytes of an ld.so.cache that is read.
pub const MAX_LD_CACHE_BYTES: usize = 64 << 20;

/// Read-only access to the files of a host. All paths are absolute paths as programs on the host
/// see them. If the host's root directory is mounted at another path, as in a pod, the
/// implementation puts that path in front.
pub trait HostView {
    /// Returns the type of the file at `path`, following symbolic links. Returns `None` if there is
    /// no file.
    ///
    /// # Errors
    /// The look-up fails although the file may exist, for example because of a loop of symbolic
    /// links.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>>;

    fn is_link(&self, path: &Path) -> bool;

    /// Returns the names of the files in a directory, in no particular order. A directory that does
    /// not exist counts as empty.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Returns the names in a directory that `is_match` accepts, in no particular order. A
    /// recording of a host stores only these names, because the others do not influence the scan.
    fn list_matching(
        &self,
        path: &Path,
        is_match: &dyn Fn(&str) -> bool,
    ) -> io::Result<Vec<String>> {
        let mut names = self.list(path)?;
        names.retain(|name| is_match(name));
        Ok(names)
    }

    /// Reads at most the first `limit` bytes of a file. Fails if there is no regular file at the
    /// path.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;

    /// Returns whether the file is a script, which begins with `#!` and the path of its
    /// interpreter.
    fn is_script(&self, path: &Path) -> bool {
        self.read(path, 2).is_ok_and(|bytes| bytes == b"#!")
    }

    /// Looks up a file that a container may get. Checks that only root can have placed a file at
    /// this path. The file itself may belong to another user. Returns `None` if there is no file.
    ///
    /// # Errors
    /// Users other than root can decide which file is at the path, or the file cannot be opened.
    fn find_trusted_file(&self, path: &Path) -> Result<Option<HostFile>, OwnershipError> {
        let to_error = |error| OwnershipError::from_open_error(path, error);
        let Some(entry) = self.entry(path).map_err(to_error)? else {
            return Ok(None);
        };
        Ok(Some(HostFile {
            entry,
            path: self.canonicalize(path).map_err(to_error)?,
            can_others_replace: false,
        }))
    }

    /// Checks that only root can change a file, and the directories and links on its path.
    ///
    /// # Errors
    /// Users other than root can change the file, a directory or a link, or the file cannot be
    /// opened.
    fn check_root_only(&self, _path: &Path) -> Result<(), OwnershipError> {
        Ok(())
    }

    /// Returns the number of seconds since the boot, or `None` if it cannot be read.
    fn uptime(&self) -> Option<u64> {
        let text = self.read(Path::new("/proc/uptime"), 64).ok()?;
        let text = String::from_utf8(text).ok()?;
        text.split(['.', ' ']).next()?.parse().ok()
    }

    /// Returns the id of a group from the host's /etc/group, or `None` if the file does not list
    /// the group.
    ///
    /// # Errors
    /// The file /etc/group cannot be read, is too large, or does not exist. For example, it does
    /// not exist in a container that sees only some directories of the host.
    fn group_id(&self, name: &str) -> io::Result<Option<u32>> {
        let bytes = self.read(Path::new(GROUP_FILE_PATH), groups::MAX_GROUP_FILE_BYTES)?;
        if bytes.len() == groups::MAX_GROUP_FILE_BYTES {
            return Err(io::Error::other("it is too large"));
        }
        Ok(groups::find_group_id(
            &String::from_utf8_lossy(&bytes),
            name,
        ))
    }

    /// Returns the target of the symbolic link at `path`, exactly as it is stored in the link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// Returns the path with all symbolic links resolved, as realpath(3) does. Fails if there is no
    /// file at the path.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;

    /// Returns the paths of the library `soname` for programs of this ABI, from the host's
    /// ld.so.cache. The loader uses the first of these paths.
    ///
    /// # Errors
    /// ld.so.cache exists, but cannot be read or is invalid.
    fn libraries(&self, soname: &str, abi: ProgramAbi) -> io::Result<Vec<PathBuf>>;

    /// Returns the sonames of all libraries for programs of this ABI, from the host's ld.so.cache,
    /// each name once.
    ///
    /// # Errors
    /// ld.so.cache exists, but cannot be read or is invalid.
    fn library_names(&self, abi: ProgramAbi) -> io::Result<Vec<String>>;

    /// Returns whether the host has an ld.so.cache. Hosts without ldconfig have none.
    ///
    /// # Errors
    /// ld.so.cache exists, but cannot be read or is invalid.
    fn has_library_cache(&self) -> io::Result<bool>;

    /// Returns a view in which the directory at `path` is the root directory. A driver that is
    /// installed in a container has such a root directory for its libraries and programs.
    ///
    /// # Errors
    /// There is no directory at `path`.
    fn open_driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>>;
}

/// The ABI for which a program or a library is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramAbi {
    /// The ABI of programs for the processor architecture for which Boathook is built.
    Native,
    /// The ABI of 32-bit programs, which some machines can also run.
    Bits32,
}

/// A file of the host that a container may get. [`HostView::find_trusted_file`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFile {
    pub entry: Entry,
    /// The path of the file, with symbolic links resolved.
    pub path: PathBuf,
    /// Whether users other than root can replace the file with another one, because they can change
    /// its directory.
    pub can_others_replace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    Directory,
    File,
    Device(DeviceNumber),
    Socket,
    /// A file of another type, such as a pipe.
    Other,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Entry::Directory => f.write_str("a directory"),
            Entry::File => f.write_str("a regular file"),
            Entry::Device(number) => write!(f, "the device {number}"),
            Entry::Socket => f.write_str("a socket"),
            Entry::Other => f.write_str("neither file, directory nor device"),
        }
    }
}
