//! Reads the class index: a file in a directory of class files that has the content of each class
//! as JSON. With the index, the hook reads no class file for a container that requests no devices.
//! For a container with a request, it needs half the time. The installer writes the index with
//! [`build_index`].
//!
//! The class files are still needed. For each of them the index has the size and times of the file
//! when the index was written. If they differ now, or if there is no index, the class file itself
//! is read. So an administrator can change, add and remove class files at any time.
//!
//! The first line of the index has the version of Boathook and an entry for each class. After this
//! line, each class has a line, whose offset is in its entry.

mod build;
mod unindexed;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use host_files::rooted_path::RegularFile;
use nix::sys::stat::{FileStat, fstat};
use serde::{Deserialize, Serialize};

use crate::class::ClassSpec;
use crate::name::ClassName;
use crate::ownership;
use crate::strict_toml;

pub use build::{ClassFile, build_index};
pub use unindexed::list_unindexed_classes;

/// The name of the class index in a directory of class files. It begins with a dot, so that the
/// index does not look like a class file.
pub const CLASS_INDEX_NAME: &str = ".classes.json";

/// The maximum length in bytes of the first line of an index. An index with a longer line is not
/// used.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// The number of bytes of an index that are read first. They contain the whole first line of a
/// release's index, so that one call of read(2) is enough.
const FIRST_READ_BYTES: usize = 24 << 10;

/// The maximum length in bytes of one class in an index. A longer class is read from its class file
/// instead.
const MAX_CLASS_BYTES: u64 = 1 << 20;

/// The first line of an index, which is JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// The version of Boathook that wrote the index. Only the same version uses the index, because
    /// another version may check class files by other rules.
    version: String,
    classes: Vec<ClassEntry>,
}

/// The entry of a class file in the first line of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ClassEntry {
    name: String,
    file: FileState,
    /// The environment variable by which a container requests devices of the class, such as
    /// `NPU_VISIBLE_DEVICES`.
    variable: String,
    /// The classes that this class extends, directly or indirectly.
    bases: Vec<String>,
    /// The offset of the class in bytes, counted from the end of the index's first line.
    offset: u64,
    /// The length of the class in bytes.
    length: u64,
}

/// The state of a class file when the index was written. The kernel sets the time of the last
/// status change (ctime) from the clock of the host at each change of a file. A program cannot set
/// it to another value, so it shows each change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    inode: u64,
    size: i64,
    /// The time of the last change of the content, in nanoseconds since 1970.
    modified: i64,
    /// The time of the last status change, in nanoseconds since 1970.
    changed: i64,
}

impl FileState {
    /// Returns the state of a file with this metadata, or `None` if a time does not fit into 64
    /// bits.
    fn from_stat(stat: &FileStat) -> Option<Self> {
        let to_nanoseconds = |seconds: i64, nanoseconds: i64| {
            seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
        };
        Some(FileState {
            inode: stat.st_ino,
            size: stat.st_size,
            modified: to_nanoseconds(stat.st_mtime, stat.st_mtime_nsec)?,
            changed: to_nanoseconds(stat.st_ctime, stat.st_ctime_nsec)?,
        })
    }
}

/// An open class index, and the entries of its first line.
pub(super) struct ClassIndex {
    directory: Arc<ownership::TrustedDirectory>,
    file: Arc<File>,
    header_length: u64,
    /// The time at which the index was written (ctime), in nanoseconds since 1970.
    write_time: i64,
    entries: Vec<ClassEntry>,
}

impl ClassIndex {
    /// Opens the index of a directory. Returns `None` if the directory has no index that this
    /// version can use, or if users other than root can change the index.
    pub(super) fn open(directory: &Arc<ownership::TrustedDirectory>) -> Option<Self> {
        let file = directory.open_file(CLASS_INDEX_NAME.as_ref()).ok()?;
        Self::read(Arc::clone(directory), file)
    }

    fn read(directory: Arc<ownership::TrustedDirectory>, file: RegularFile) -> Option<Self> {
        let file = file.into_file();
        let write_time = FileState::from_stat(&fstat(&file).ok()?)?.changed;
        let mut bytes = vec![0; FIRST_READ_BYTES];
        let mut length = 0;
        let header_length = loop {
            let count = file.read_at(&mut bytes[length..], length as u64).ok()?;
            let line_end = memchr::memchr(b'\n', &bytes[length..length + count]);
            length += count;
            match line_end {
                Some(line_end) => break length - count + line_end + 1,
                None if count == 0 || length >= MAX_HEADER_BYTES => return None,
                None => bytes.resize(length * 2, 0),
            }
        };
        let header: Header = serde_json::from_slice(&bytes[..header_length]).ok()?;
        (header.version == env!("CARGO_PKG_VERSION")).then(|| ClassIndex {
            directory,
            file: Arc::new(file),
            header_length: header_length as u64,
            write_time,
            entries: header.classes,
        })
    }

    /// Returns the class of this name, if the class file is in the same state as when the index was
    /// written. `stat` has the metadata of the class file.
    pub(super) fn find_class(&self, name: &ClassName, stat: &FileStat) -> Option<IndexedClass> {
        let has_name = |entry: &&ClassEntry| entry.name == name.as_str();
        let entry = self.entries.iter().find(has_name)?;
        // The clock of a file system advances in steps of some milliseconds. A class file that was
        // changed in the step in which the index was written might have been changed again in the
        // same step, and would have the same time.
        let is_older = entry.file.changed < self.write_time;
        (is_older && FileState::from_stat(stat) == Some(entry.file)).then(|| IndexedClass {
            directory: Arc::clone(&self.directory),
            index_file: Arc::clone(&self.file),
            start: self.header_length + entry.offset,
            entry: entry.clone(),
        })
    }
}

/// A class whose content is in a class index. The content is read when the class is needed.
#[derive(Debug, Clone)]
pub(super) struct IndexedClass {
    directory: Arc<ownership::TrustedDirectory>,
    index_file: Arc<File>,
    /// The offset of the class in the index file.
    start: u64,
    entry: ClassEntry,
}

/// Two classes are equal if they are from class files in the same state.
impl PartialEq for IndexedClass {
    fn eq(&self, other: &Self) -> bool {
        self.entry == other.entry
    }
}

impl Eq for IndexedClass {}

impl IndexedClass {
    pub(super) fn directory(&self) -> &Arc<ownership::TrustedDirectory> {
        &self.directory
    }

    pub(super) fn variable(&self) -> &str {
        &self.entry.variable
    }

    pub(super) fn bases(&self) -> &[String] {
        &self.entry.bases
    }

    /// Reads the class. The class is not validated again, because the same version of Boathook did
    /// this when it wrote the index. Returns `None` if the index is damaged.
    pub(super) fn read(&self) -> Option<ClassSpec> {
        strict_toml::parse_json(str::from_utf8(&self.read_bytes()?).ok()?)
    }

    /// Reads the class as JSON. Returns `None` if the index file is too short.
    fn read_bytes(&self) -> Option<Vec<u8>> {
        if self.entry.length > MAX_CLASS_BYTES {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(self.entry.length).ok()?];
        self.index_file.read_exact_at(&mut bytes, self.start).ok()?;
        Some(bytes)
    }
}
