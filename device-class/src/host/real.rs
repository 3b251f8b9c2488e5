//! Reads the files of the running host, or of a host whose root directory is mounted at another
//! path.

use crate::collect_by_insertion;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host_files::rooted_path::{FileKind, RegularFile, Resolver, RootDir};
use nix::dir::Dir;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat, lstat, stat};
use nix::time::{ClockId, clock_gettime};

use super::{DeviceKind, DeviceNumber, Entry, HostFile, HostView, MAX_LD_CACHE_BYTES, ProgramAbi};
use crate::ld_cache::{Abi, LdCache};
use crate::ownership::{self, OwnershipError, TreeFile, TrustedTree};

/// A [`HostView`] of the real files below a root directory. If the root is not `/`, an absolute
/// symbolic link is resolved inside the root.
///
/// A value is for one scan: it caches the names in directories and the files for containers after
/// the first look-up. After a change of the host, for example by a program that may load a driver,
/// the caller must create a new value with [`RealHost::open`].
#[derive(Debug)]
pub struct RealHost {
    root: PathBuf,
    /// The open root directory, below which openat2(2) resolves paths. `None` if the root is `/`.
    root_dir: Option<RootDir>,
    ld_cache: OnceCell<Option<LdCache>>,
    /// Opens the files that containers get, and checks which users can have placed them there.
    tree: TrustedTree,
    /// A cache of the files that were looked up in `tree`. `None` means that there is no file. The
    /// cache is useful because a file is often looked up twice: a class may name a library by its
    /// soname and by a pattern, or a scan reads a file after it has found it.
    found_files: RefCell<HashMap<PathBuf, Option<Arc<TreeFile>>>>,
    /// A cache of the names in the directories that were listed. Several path patterns of a class
    /// often search the same directory.
    listed_names: RefCell<HashMap<PathBuf, Vec<String>>>,
}

impl RealHost {
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(root)?;
        let root_dir = if root == Path::new("/") {
            None
        } else {
            Some(RootDir::open(&root, Resolver::Openat2)?)
        };
        Ok(RealHost {
            tree: TrustedTree::new(&root),
            root,
            root_dir,
            ld_cache: OnceCell::new(),
            found_files: RefCell::default(),
            listed_names: RefCell::default(),
        })
    }

    fn open_at(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        let file = match &self.root_dir {
            None => open(path, flags | OFlag::O_CLOEXEC, Mode::empty())?,
            Some(root) => root.open_file(path, flags)?.ok_or(nix::Error::ENOENT)?,
        };
        Ok(file.into())
    }

    /// Opens a file for reading. `O_NONBLOCK` is needed because the file may be a pipe, whose
    /// opening could block.
    fn open_for_reading(&self, path: &Path) -> io::Result<File> {
        self.open_at(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
    }

    /// Converts a path as this process sees it to a path inside the root. The symbolic links in the
    /// path must be resolved.
    fn path_in_root(&self, real_path: &Path) -> io::Result<PathBuf> {
        if self.root_dir.is_none() {
            return Ok(real_path.into());
        }
        // Both paths have their symbolic links resolved, so the path of a file in the root begins
        // with the root's path and a slash.
        let path_bytes = real_path.as_os_str().as_bytes();
        match path_bytes.strip_prefix(self.root.as_os_str().as_bytes()) {
            Some([]) => Ok("/".into()),
            Some(suffix @ [b'/', ..]) => Ok(OsStr::from_bytes(suffix).into()),
            _ => Err(io::Error::other(format!(
                "{} is not below {}",
                real_path.display(),
                self.root.display()
            ))),
        }
    }

    /// Finds a file for a container. Fails if users other than root can have placed it there.
    /// Returns `None` if there is no file.
    fn find_tree_file(&self, path: &Path) -> Result<Option<Arc<TreeFile>>, OwnershipError> {
        if let Some(file) = self.found_files.borrow().get(path) {
            return Ok(file.clone());
        }
        let file = match self.tree.find_file(path) {
            Err(OwnershipError::Open { error, .. }) if is_not_found(&error) => None,
            result => Some(Arc::new(result?)),
        };
        let mut found_files = self.found_files.borrow_mut();
        found_files.insert(path.to_owned(), file.clone());
        Ok(file)
    }

    fn ld_cache(&self) -> io::Result<Option<&LdCache>> {
        if let Some(cache) = self.ld_cache.get() {
            return Ok(cache.as_ref());
        }
        let cache = match self.open_for_reading(Path::new("/etc/ld.so.cache")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // An ld.so.cache that cannot be read is an error. If it counted as empty, the host
            // would seem to have no libraries.
            result => {
                let bytes = read_regular(result?, MAX_LD_CACHE_BYTES)?;
                let cache = LdCache::parse(&bytes);
                Some(cache.map_err(|e| io::Error::other(format!("/etc/ld.so.cache: {e}")))?)
            }
        };
        Ok(self.ld_cache.get_or_init(|| cache).as_ref())
    }
}

fn entry_from_stat(stat: &FileStat) -> Entry {
    let to_device = |kind| {
        Entry::Device(DeviceNumber {
            kind,
            major: nix::sys::stat::major(stat.st_rdev) as u32,
            minor: nix::sys::stat::minor(stat.st_rdev) as u32,
        })
    };
    match FileKind::from_stat(stat) {
        FileKind::CharDevice => to_device(DeviceKind::Character),
        FileKind::BlockDevice => to_device(DeviceKind::Block),
        FileKind::Directory => Entry::Directory,
        FileKind::Regular => Entry::File,
        FileKind::Socket => Entry::Socket,
        FileKind::Symlink | FileKind::Fifo | FileKind::Unknown => Entry::Other,
    }
}

fn to_io_error(error: OwnershipError) -> io::Error {
    match error {
        OwnershipError::Open { error, .. } => error,
        error => io::Error::other(error),
    }
}

/// Reads at most the first `limit` bytes of a file. Fails if the file is not a regular file.
fn read_regular(file: File, limit: usize) -> io::Result<Vec<u8>> {
    let stat = fstat(&file)?;
    if FileKind::from_stat(&stat) != FileKind::Regular {
        return Err(io::Error::other("not a regular file"));
    }
    RegularFile::new(file, &stat).read(limit as u64)
}

/// Returns the path of an open file. Because the file exists, an error never has the kind
/// `NotFound`.
fn real_path(file: &File) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(io::Error::other)
}

impl HostView for RealHost {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        let result = match &self.root_dir {
            None => stat(path).map_err(io::Error::from),
            Some(_) => match self.open_at(path, OFlag::O_PATH) {
                // The file exists, so if this call fails, the error must not be `NotFound`.
                Ok(file) => Ok(fstat(&file).map_err(io::Error::other)?),
                Err(error) => Err(error),
            },
        };
        match result {
            Ok(stat) => Ok(Some(entry_from_stat(&stat))),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn find_trusted_file(&self, path: &Path) -> Result<Option<HostFile>, OwnershipError> {
        let Some(tree_file) = self.find_tree_file(path)? else {
            return Ok(None);
        };
        let path_in_root = self.path_in_root(&tree_file.path);
        Ok(Some(HostFile {
            entry: entry_from_stat(&tree_file.stat),
            path: path_in_root.map_err(|error| OwnershipError::from_open_error(path, error))?,
            can_others_replace: tree_file.can_others_replace,
        }))
    }

    fn is_link(&self, path: &Path) -> bool {
        let result = match &self.root_dir {
            None => lstat(path).map_err(io::Error::from),
            Some(_) => self
                .open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)
                .and_then(|file| Ok(fstat(&file)?)),
        };
        result.is_ok_and(|stat| FileKind::from_stat(&stat) == FileKind::Symlink)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        if let Some(names) = self.listed_names.borrow().get(path) {
            return Ok(names.clone());
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        let directory = match self.open_at(path, flags) {
            Ok(directory) => directory,
            Err(error) if is_not_found(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in Dir::from_fd(directory.into())? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) => names.push(name.to_owned()),
                // In /sys only the name of a network interface can be invalid UTF-8. Such an
                // interface cannot be used, but its name is returned, so that a message can show
                // it.
                Err(_) if path.starts_with("/sys") => {
                    names.push(entry.file_name().to_string_lossy().into_owned());
                }
                Err(_) => {}
            }
        }
        let mut listed_names = self.listed_names.borrow_mut();
        listed_names.insert(path.to_owned(), names.clone());
        Ok(names)
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        if path.starts_with("/sys") || path.starts_with("/proc") {
            return read_regular(self.open_for_reading(path)?, limit);
        }
        // Outside of /sys and /proc, a user other than root may have created the file, and a
        // container may get a copy of its content. So the same checks apply as for a file that a
        // container gets as a mount.
        let tree_file = self.find_tree_file(path).map_err(to_io_error)?;
        let tree_file = tree_file.ok_or(nix::Error::ENOENT)?;
        let file = tree_file.open_for_reading().map_err(to_io_error)?;
        file.read(limit as u64)
    }

    fn check_root_only(&self, path: &Path) -> Result<(), OwnershipError> {
        ownership::resolve_trusted_program(&self.root, path).map(|_| ())
    }

    /// Returns the seconds since the boot. They come from the kernel's clock, because /proc/uptime
    /// may be missing in a container.
    fn uptime(&self) -> Option<u64> {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
        u64::try_from(time.tv_sec()).ok()
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let link = self.open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
        Ok(nix::fcntl::readlinkat(&link, "")?.into())
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.path_in_root(&real_path(&self.open_at(path, OFlag::O_PATH)?)?)
    }

    fn libraries(&self, soname: &str, abi: ProgramAbi) -> io::Result<Vec<PathBuf>> {
        let cache_abi = match abi {
            ProgramAbi::Native => Some(Abi::NATIVE),
            ProgramAbi::Bits32 => Abi::BITS_32,
        };
        let (Some(cache_abi), Some(cache)) = (cache_abi, self.ld_cache()?) else {
            return Ok(Vec::new());
        };
        let entries = cache
            .lookup(soname, cache_abi)
            .filter(|entry| entry.hwcap == 0);
        Ok(entries.map(|entry| entry.path().to_owned()).collect())
    }

    fn has_library_cache(&self) -> io::Result<bool> {
        Ok(self.ld_cache()?.is_some())
    }

    fn library_names(&self, abi: ProgramAbi) -> io::Result<Vec<String>> {
        let cache_abi = match abi {
            ProgramAbi::Native => Some(Abi::NATIVE),
            ProgramAbi::Bits32 => Abi::BITS_32,
        };
        let (Some(cache_abi), Some(cache)) = (cache_abi, self.ld_cache()?) else {
            return Ok(Vec::new());
        };
        let entries = cache.entries.iter();
        let entries = entries.filter(|entry| entry.hwcap == 0 && cache_abi.accepts(entry.flags));
        let names = entries.filter_map(|entry| entry.soname().to_str().map(str::to_owned));
        let names: BTreeSet<String> = collect_by_insertion(names);
        Ok(names.into_iter().collect())
    }

    fn open_driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        let directory = self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        Ok(Box::new(RealHost::open(&real_path(&directory)?)?))
    }
}

/// Returns whether an error means that the file does not exist. After any other error it is unknown
/// whether the file exists.
fn is_not_found(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(nix::Error::ENXIO as i32)
}
