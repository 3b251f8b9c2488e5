//! What discovery sees of a host: the real one, or a recorded one.

mod real;
mod recorded;
mod recording;
mod view;

use std::io;
use std::path::{Path, PathBuf};

use crate::ownership::OwnershipError;

pub use crate::device::{DeviceKind, DeviceNumber};
pub use real::RealHost;
pub use recorded::{RecordedHost, RecordedHostError};
pub use recording::Recording;
pub use view::View;

/// The largest attribute that is read, in bytes. sysfs gives at most one page;
/// procfs files that classes read are smaller than this too.
pub const MAX_ATTRIBUTE: usize = 64 * 1024;

/// The largest ld.so.cache that is read, in bytes.
pub const MAX_LD_CACHE: usize = 64 << 20;

/// A host's file tree, for reading only. Paths are absolute, as the host's own
/// programs would write them, whatever root they are looked up under.
pub trait HostView {
    /// What is at `path`, with symbolic links followed. `None`: nothing.
    ///
    /// # Errors
    /// Anything but absence, such as a loop of links.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>>;

    fn is_link(&self, path: &Path) -> bool;

    /// The names in a directory, in no order. An absent one has none.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// The first `limit` bytes of a file.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;

    /// Whether the file is a script, which names its interpreter in the first line.
    fn is_script(&self, path: &Path) -> bool {
        self.read(path, 2).is_ok_and(|start| start == b"#!")
    }

    /// What is at `path` for containers, which get only what root put there or gave
    /// away. `None`: nothing.
    ///
    /// # Errors
    /// Others than root can decide what is there, or the file cannot be opened.
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

    /// Checks that root alone can change a file and what is on the way to it.
    ///
    /// # Errors
    /// Others can, or the file cannot be opened.
    fn check_root_only(&self, _path: &Path) -> Result<(), OwnershipError> {
        Ok(())
    }

    /// The seconds since the boot.
    fn uptime(&self) -> Option<u64> {
        let text = self.read(Path::new("/proc/uptime"), 64).ok()?;
        let text = String::from_utf8(text).ok()?;
        text.split(['.', ' ']).next()?.parse().ok()
    }

    /// Where the symbolic link at `path` points, as it is written.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The path without any symbolic link in it.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Where the host's dynamic loader finds `soname` for such programs: the
    /// first path is the one that it takes.
    ///
    /// # Errors
    /// The cache of the loader is there but cannot be used.
    fn libraries(&self, soname: &str, programs: Programs) -> io::Result<Vec<PathBuf>>;

    /// The names of the libraries that the host's dynamic loader finds for such
    /// programs, each once.
    ///
    /// # Errors
    /// The cache of the loader is there but cannot be used.
    fn library_names(&self, programs: Programs) -> io::Result<Vec<String>>;

    /// The tree below `path` as a host of its own: the root of a driver that
    /// runs in a container.
    ///
    /// # Errors
    /// There is no directory at `path`.
    fn driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>>;
}

/// For which of a machine's programs a library is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Programs {
    /// Those of this program's own architecture.
    Native,
    /// 32-bit programs, which the machine can run as well.
    Bits32,
}

/// A place of the host, as [`HostView::place`] finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub entry: Entry,
    /// Its path without links.
    pub path: PathBuf,
    /// Whether others than root can put something else there.
    pub is_of_others: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    Directory,
    File,
    Device(DeviceNumber),
    Socket,
    /// Something else, such as a pipe.
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
