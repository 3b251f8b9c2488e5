//! The interface by which a scan reads a host: the files of the real host, or a recorded host.

mod groups;
mod real;
mod recorded;
mod recording;
mod view;

use std::io;
use std::path::{Path, PathBuf};

use crate::ownership::OwnershipError;

pub use crate::device::{DeviceKind, DeviceNumber};
pub use groups::GROUP_FILE;
pub use real::RealHost;
pub use recorded::{RecordedHost, RecordedHostError};
pub use recording::Recording;
pub use view::View;

/// The maximum number of bytes that are read from a file with an attribute. A file of sysfs has at
/// most one page, and the files of procfs that classes read are smaller than this limit, too.
pub const MAX_ATTRIBUTE: usize = 64 * 1024;

/// The maximum size in bytes of an ld.so.cache that is read.
pub const MAX_LD_CACHE: usize = 64 << 20;

/// Read-only access to the file tree of a host. All paths are absolute paths as the host's own
/// programs use them. If the tree is mounted at another directory, the view adds that directory.
pub trait HostView {
    /// Returns the type of the file at `path`, following symbolic links. `None` means that the
    /// file does not exist.
    ///
    /// # Errors
    /// The lookup fails for another reason than absence, such as a loop of links.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>>;

    fn is_link(&self, path: &Path) -> bool;

    /// Returns the names in a directory, in no particular order. A directory that does not exist
    /// counts as empty.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Returns the names in a directory that `is_match` accepts, in no particular order. Only these
    /// names are written to a recorded host, because the others have no influence on the scan.
    fn list_matching(
        &self,
        path: &Path,
        is_match: &dyn Fn(&str) -> bool,
    ) -> io::Result<Vec<String>> {
        let mut names = self.list(path)?;
        names.retain(|name| is_match(name));
        Ok(names)
    }

    /// Reads at most the first `limit` bytes of a file.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;

    /// Returns whether the file is a script, which names its interpreter in the first line.
    fn is_script(&self, path: &Path) -> bool {
        self.read(path, 2).is_ok_and(|start| start == b"#!")
    }

    /// Returns the file at `path` if a container may get it, because only root can have put it there.
    /// Its owner may be another user. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Users other than root can decide which file is there, or the file cannot be opened.
    fn place(&self, path: &Path) -> Result<Option<Place>, OwnershipError> {
        let failed = |error| OwnershipError::open(path, error);
        let Some(entry) = self.entry(path).map_err(failed)? else {
            return Ok(None);
        };
        Ok(Some(Place {
            entry,
            path: self.canonical(path).map_err(failed)?,
            is_of_others: false,
        }))
    }

    /// Checks that only root can change a file, and the directories and links on its path.
    ///
    /// # Errors
    /// Users other than root can change one of them, or the file cannot be opened.
    fn check_root_only(&self, _path: &Path) -> Result<(), OwnershipError> {
        Ok(())
    }

    /// Returns the time since the boot in seconds, or `None` if it cannot be read.
    fn uptime(&self) -> Option<u64> {
        let text = self.read(Path::new("/proc/uptime"), 64).ok()?;
        let text = String::from_utf8(text).ok()?;
        text.split(['.', ' ']).next()?.parse().ok()
    }

    /// Returns the number of a group in the host's /etc/group, or `None` if the file lacks it.
    ///
    /// # Errors
    /// The file does not exist, as in a container that has only parts of the host, or cannot be
    /// read.
    fn group_id(&self, name: &str) -> io::Result<Option<u32>> {
        let bytes = self.read(Path::new(GROUP_FILE), groups::MAX_GROUP_FILE)?;
        if bytes.len() == groups::MAX_GROUP_FILE {
            return Err(io::Error::other("it is too large"));
        }
        Ok(groups::find_group_id(
            &String::from_utf8_lossy(&bytes),
            name,
        ))
    }

    /// Reads the target of the symbolic link at `path`, as the link has it.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// Resolves all symbolic links in a path.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Returns the paths where the host's dynamic loader finds `soname` for these programs. The
    /// loader takes the first path.
    ///
    /// # Errors
    /// The loader's cache, ld.so.cache, exists but cannot be used.
    fn libraries(&self, soname: &str, programs: Programs) -> io::Result<Vec<PathBuf>>;

    /// Returns the sonames of all libraries in the loader's cache for these programs, each once.
    ///
    /// # Errors
    /// The loader's cache, ld.so.cache, exists but cannot be used.
    fn library_names(&self, programs: Programs) -> io::Result<Vec<String>>;

    /// Opens the tree below `path` as a view of its own. It is the root directory of a driver
    /// that is installed in a container.
    ///
    /// # Errors
    /// There is no directory at `path`.
    fn driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>>;
}

/// The programs of a machine that can use a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Programs {
    /// Programs of the architecture for which Boathook is built.
    Native,
    /// 32-bit programs, where the machine can run them as well.
    Bits32,
}

/// A file of the host that a container may get. [`HostView::place`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub entry: Entry,
    /// The path of the file, without links.
    pub path: PathBuf,
    /// Whether users other than root can put another file there.
    pub is_of_others: bool,
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
