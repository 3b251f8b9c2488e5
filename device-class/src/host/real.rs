//! The running host, or a host's tree that is mounted somewhere.

use crate::inserted;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode};
use nix::time::{ClockId, clock_gettime};
use rooted_path::{FileKind, Handle, Resolver, RootDir};

use super::{DeviceKind, DeviceNumber, Entry, HostView, MAX_LD_CACHE, Place, Programs};
use crate::ld_cache::{Abi, LdCache};
use crate::ownership::{self, OwnershipError, Tree};

/// A [`HostView`] of the real file system under a root.
///
/// The host is trusted, so that its paths may be looked up more than once. A
/// root other than `/` still is a root: absolute links stay inside it.
#[derive(Debug)]
pub struct RealHost {
    root: PathBuf,
    /// Only for a root other than `/`.
    inside: Option<RootDir>,
    ld_cache: OnceCell<Option<LdCache>>,
    /// For what containers get.
    tree: Tree,
}

impl RealHost {
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(root)?;
        let inside = match root == Path::new("/") {
            true => None,
            false => Some(RootDir::open(&root, Resolver::Openat2)?),
        };
        Ok(RealHost {
            tree: Tree::new(&root),
            root,
            inside,
            ld_cache: OnceCell::new(),
        })
    }

    fn open_at(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        let file = match &self.inside {
            None => open(path, flags | OFlag::O_CLOEXEC, Mode::empty())?,
            Some(root) => root.open_file(path, flags)?.ok_or(nix::Error::ENOENT)?,
        };
        Ok(file.into())
    }

    /// Not blocking: what a glob matched may be a pipe.
    fn open_for_reading(&self, path: &Path) -> io::Result<File> {
        self.open_at(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
    }

    /// The path in this root of something whose path without links is `real`.
    fn path_inside(&self, real: &Path) -> io::Result<PathBuf> {
        if self.inside.is_none() {
            return Ok(real.into());
        }
        // Both are without links: what is left of the text begins with the slash.
        let inside = real.as_os_str().as_bytes();
        match inside.strip_prefix(self.root.as_os_str().as_bytes()) {
            Some([]) => Ok("/".into()),
            Some(inside @ [b'/', ..]) => Ok(OsStr::from_bytes(inside).into()),
            _ => Err(io::Error::other(format!(
                "{} is not below {}",
                real.display(),
                self.root.display()
            ))),
        }
    }

    fn ld_cache(&self) -> io::Result<Option<&LdCache>> {
        if let Some(cache) = self.ld_cache.get() {
            return Ok(cache.as_ref());
        }
        let cache = match self.open_for_reading(Path::new("/etc/ld.so.cache")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // An error in reading it must not look as if the host had no library.
            file => {
                let bytes = read_regular(file?, MAX_LD_CACHE)?;
                let parsed = LdCache::parse(&bytes);
                Some(parsed.map_err(|e| io::Error::other(format!("/etc/ld.so.cache: {e}")))?)
            }
        };
        Ok(self.ld_cache.get_or_init(|| cache).as_ref())
    }
}

fn entry_of(stat: &FileStat) -> Entry {
    let device = |kind| {
        Entry::Device(DeviceNumber {
            kind,
            major: nix::sys::stat::major(stat.st_rdev) as u32,
            minor: nix::sys::stat::minor(stat.st_rdev) as u32,
        })
    };
    match FileKind::from_stat(stat) {
        FileKind::CharDevice => device(DeviceKind::Character),
        FileKind::BlockDevice => device(DeviceKind::Block),
        FileKind::Directory => Entry::Directory,
        FileKind::Regular => Entry::File,
        FileKind::Socket => Entry::Socket,
        FileKind::Symlink | FileKind::Fifo | FileKind::Unknown => Entry::Other,
    }
}

/// The first `limit` bytes of a file that must be a regular one.
fn read_regular(file: File, limit: usize) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    // Room for the whole file, so that one read gets it and a second its end.
    // sysfs and procfs give no size, or a page for a line.
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(size.min(limit).max(255) + 1);
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path of an open file. No failure means that there is no such file.
fn real_path(file: &File) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(io::Error::other)
}

impl HostView for RealHost {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        let found = match self.open_at(path, OFlag::O_PATH) {
            // No failure of this call means that nothing is there.
            Ok(file) => Handle::new(file.into(), path).map_err(io::Error::other)?,
            Err(error) if absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(entry_of(found.stat())))
    }

    fn place(&self, path: &Path) -> Result<Option<Place>, OwnershipError> {
        let found = match self.tree.find(path) {
            Err(OwnershipError::Open { error, .. }) if absent(&error) => return Ok(None),
            found => found?,
        };
        let inside = self.path_inside(&found.path);
        Ok(Some(Place {
            entry: entry_of(&found.stat),
            path: inside.map_err(|error| OwnershipError::open(path, error))?,
            is_of_others: found.is_of_others,
        }))
    }

    fn is_link(&self, path: &Path) -> bool {
        self.open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)
            .and_then(|file| file.metadata())
            .is_ok_and(|metadata| metadata.is_symlink())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let directory = match self.inside {
            None => path.to_owned(),
            Some(_) => match self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY) {
                Ok(directory) => real_path(&directory)?,
                Err(error) if absent(&error) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
        };
        match fs::read_dir(directory) {
            Ok(entries) => entries
                // A name that is not UTF-8 is not that of a device.
                .filter_map(|entry| entry.map(|e| e.file_name().into_string().ok()).transpose())
                .collect(),
            Err(error) if absent(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        if path.starts_with("/sys") || path.starts_with("/proc") {
            return read_regular(self.open_for_reading(path)?, limit);
        }
        // What is read elsewhere may reach a container, too. Only a regular file is
        // opened: to open a device or a pipe can have effects.
        let found = self.tree.find(path).map_err(|error| match error {
            OwnershipError::Open { error, .. } => error,
            error => io::Error::other(error),
        })?;
        let handle = found.open().map_err(io::Error::other)?;
        if handle.kind() != FileKind::Regular {
            return Err(io::Error::other("not a regular file"));
        }
        let checked = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        read_regular(open(checked.as_str(), flags, Mode::empty())?.into(), limit)
    }

    fn check_root_only(&self, path: &Path) -> Result<(), OwnershipError> {
        ownership::program(&self.root, path).map(|_| ())
    }

    /// Of the kernel: in a container the file may not be mounted.
    fn uptime(&self) -> Option<u64> {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
        u64::try_from(time.tv_sec()).ok()
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let link = self.open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
        Ok(nix::fcntl::readlinkat(&link, "")?.into())
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.path_inside(&real_path(&self.open_at(path, OFlag::O_PATH)?)?)
    }

    fn libraries(&self, soname: &str, programs: Programs) -> io::Result<Vec<PathBuf>> {
        let abi = match programs {
            Programs::Native => Some(Abi::NATIVE),
            Programs::Bits32 => Abi::BITS_32,
        };
        let (Some(abi), Some(cache)) = (abi, self.ld_cache()?) else {
            return Ok(Vec::new());
        };
        let plain = cache.lookup(soname, abi).filter(|entry| entry.hwcap == 0);
        Ok(plain.map(|entry| entry.path().to_owned()).collect())
    }

    fn library_names(&self, programs: Programs) -> io::Result<Vec<String>> {
        let abi = match programs {
            Programs::Native => Some(Abi::NATIVE),
            Programs::Bits32 => Abi::BITS_32,
        };
        let (Some(abi), Some(cache)) = (abi, self.ld_cache()?) else {
            return Ok(Vec::new());
        };
        let entries = cache.entries.iter();
        let plain = entries.filter(|entry| entry.hwcap == 0 && abi.takes(entry.flags));
        let names = plain.filter_map(|entry| entry.soname().to_str().map(str::to_owned));
        let names: BTreeSet<String> = inserted(names);
        Ok(names.into_iter().collect())
    }

    fn driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        let directory = self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        Ok(Box::new(RealHost::open(&real_path(&directory)?)?))
    }
}

/// Whether an error only means that there is nothing at the path.
fn absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(nix::Error::ENXIO as i32)
}
