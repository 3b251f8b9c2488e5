//! Parses, searches, merges and writes `/etc/ld.so.cache`, the cache of the dynamic loader.
//!
//! glibc's loader finds most libraries through this file. It finds an injected library by name only
//! if the cache lists the library. If the cache has an old entry for the same soname, that entry
//! takes precedence over any directory. So the hook adds its libraries to the container's cache, in
//! its own process. Running the image's `ldconfig` instead would be slow, and would run code from
//! the image.
//!
//! This module only converts bytes and opens no file. A container's cache comes from an image, so
//! every count and offset is checked before it is used. A cache is refused here if its size is
//! absurd, or if the loader would ignore or misread it. Then the caller creates a new cache
//! (`None`).
//!
//! The format is glibc's `glibc-ld.so.cache1.1` (glibc 2.2 and later;
//! `sysdeps/generic/dl-cache.h`), little-endian, as on every architecture in [`Abi`]:
//!
//! ```text
//! header 48   magic and version 20 | count u32 | string bytes u32 | flags u8, 3 unused
//!             | extension directory's offset u32 | 12 unused
//! entry 24    flags i32 | soname offset u32 | path offset u32 | OS version u32 | hwcap u64
//! strings     NUL-terminated; offsets count from the header's first byte
//! extensions  since 2.33, see `extension.rs`
//! ```

mod abi;
mod error;
mod extension;
mod image;
mod merge;
mod order;
mod parse;
#[cfg(test)]
mod tests;
mod work;
mod write;

use std::cmp::Ordering;
use std::ffi::{CString, NulError, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use abi::{Abi, Flags};
pub use error::LdCacheError;
pub use order::soname_cmp;

// These limits also bound the time of parsing and merging, because an untrusted image may contain
// any file up to these limits. `tests/work.rs` counts the work for the worst file.

/// The maximum size of a cache in bytes. The cache of a full desktop distribution has about 300 kB.
/// It is also the limit for the strings of all parsed entries together. Entries of a file may share
/// one string, so without this limit a small file could need much memory.
pub const MAX_CACHE_BYTES: usize = 2 << 20;

/// The maximum number of entries of a cache. A full desktop distribution has a few thousand.
pub const MAX_ENTRIES: usize = 1 << 14;

/// The maximum length of a path in bytes, with its NUL: `PATH_MAX` of Linux.
pub const MAX_PATH_BYTES: usize = 4096;

/// The maximum length of a soname in bytes, with its NUL: a soname is a file name (`NAME_MAX`).
/// Sorting compares sonames, so the limit bounds the cost of one comparison.
pub const MAX_NAME_BYTES: usize = 256;

/// The first bytes of the format: magic `glibc-ld.so.cache`, version `1.1`.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_SIZE: usize = 48;
const ENTRY_SIZE: usize = 24;

/// The content of an ld.so.cache: its entries and the known extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LdCache {
    /// The libraries in the order of the file. The loader requires a descending order by
    /// [`soname_cmp`].
    pub entries: Vec<Entry>,
    /// The program that wrote the cache, as `ldconfig -p` prints it; not NUL-terminated.
    pub generator: Option<Vec<u8>>,
    /// The names of `glibc-hwcaps` subdirectories, to which [`Entry::hwcap`] refers by index. They
    /// are in ascending byte order, because the loader merges them with its own sorted list.
    pub hwcaps: Vec<CString>,
}

/// One entry of a cache: a library for programs of one ABI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The format and the ABI of the library, such as 0x0303 for x86-64.
    pub flags: Flags,
    /// The name that programs request, such as `libx.so.1`.
    pub soname: CString,
    /// The absolute path of the library in the system to which the cache belongs.
    pub path: CString,
    /// The lowest kernel version needed (`major << 16 | minor << 8 | patch`); 0 for any.
    pub os_version: u32,
    /// The required hardware capabilities; 0 for a plain entry. If bit 62 is the only bit set above
    /// bit 41, the low 32 bits are an index into [`LdCache::hwcaps`], and bits 32 to 41 are an ISA
    /// level. Otherwise the value is a mask of CPU features, as in older caches.
    pub hwcap: u64,
}

impl Entry {
    /// Returns the soname as a string of the operating system, which need not be UTF-8.
    pub fn soname(&self) -> &OsStr {
        OsStr::from_bytes(self.soname.to_bytes())
    }

    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.path.to_bytes()))
    }
}

/// A library that is added to a cache, such as one that the hook injects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The name that programs request, such as `libx.so.1`.
    pub soname: CString,
    /// The absolute path of the library in the system to which the cache belongs.
    pub path: CString,
}

impl NewEntry {
    /// Creates an entry for the library `soname` at `path`.
    ///
    /// # Errors
    ///
    /// The soname or the path has a NUL byte. In the cache a NUL byte ends a string.
    pub fn new(soname: impl AsRef<OsStr>, path: impl AsRef<Path>) -> Result<Self, NulError> {
        Ok(Self {
            soname: CString::new(soname.as_ref().as_bytes())?,
            path: CString::new(path.as_ref().as_os_str().as_bytes())?,
        })
    }
}

impl LdCache {
    /// Returns the entries that the loader considers for `soname` and `abi`, in the file's order.
    ///
    /// The search is the same binary search as in the loader, so that both find the same entry even
    /// in an unsorted file. Names that differ only in leading zeros, such as `libx.so.1` and
    /// `libx.so.01`, are equal.
    pub fn lookup(&self, soname: impl AsRef<OsStr>, abi: Abi) -> impl Iterator<Item = &Entry> {
        let compare =
            |entry: &Entry| soname_cmp(entry.soname.to_bytes(), soname.as_ref().as_bytes());
        let start = self
            .entries
            .partition_point(|entry| compare(entry) == Ordering::Greater);
        let length = self.entries[start..]
            .iter()
            .take_while(|entry| compare(entry) == Ordering::Equal)
            .count();
        self.entries[start..start + length]
            .iter()
            .filter(move |entry| abi.accepts(entry.flags))
    }

    /// Returns the entry that the loader selects for `soname` and `abi` on a machine without any
    /// hardware capability that entries may require: the first plain entry.
    #[cfg(test)]
    fn lookup_plain(&self, soname: impl AsRef<OsStr>, abi: Abi) -> Option<&Entry> {
        self.lookup(soname, abi).find(|entry| entry.hwcap == 0)
    }
}
