//! The directory with the records of prepared claims.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use device_class::name::ClassName;
use injection_plan::claim_record::{MAX_RECORD, records_directory, uid_in_file_name};
use nix::fcntl::{Flock, FlockArg};
use rooted_path::{UNFINISHED_PREFIX, open_lock_file, open_own_file, read_own_text, replace_file};

use super::record::{ClaimUid, Record};

/// The reason for which records cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("the record {} cannot be written: {error}", path.display())]
    Json {
        path: PathBuf,
        error: serde_json::Error,
    },
}

/// The directory of records. Two instances of this program share it during an update.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
    /// The driver's directory, which has the lock files.
    above: PathBuf,
}

/// A lock, which is released when this value is dropped.
#[derive(Debug)]
pub(crate) struct StoreLock(#[expect(dead_code)] Flock<File>);

/// The open file of a record. Each preparation creates a new file, even with the same text.
/// Because this file is open, no other file can get its inode number.
#[derive(Debug)]
pub(crate) struct RecordFile(File);

/// The claims whose records cannot be read, each with the error.
pub type Unreadable = Vec<(ClaimUid, String)>;

impl Store {
    /// Opens the directory of records below the driver's directory. Creates both.
    pub fn open(driver_directory: &Path) -> Result<Self, StoreError> {
        let directory = records_directory(driver_directory);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750);
        let failed = |path: &Path, error| StoreError::Io {
            path: path.to_owned(),
            error,
        };
        builder
            .create(&directory)
            .map_err(|error| failed(&directory, error))?;
        let above = driver_directory.to_owned();
        Ok(Store { directory, above })
    }

    /// Takes the lock for records and specifications. Waits for other threads and instances.
    pub(super) fn lock(&self) -> Result<StoreLock, StoreError> {
        let path = self.above.join("serialize.lock");
        lock(&path, FlockArg::LockExclusive)
    }

    /// Takes the lock for the parts of a class. Waits for other threads and instances. Each
    /// class has its own lock, because programs may take long and claims for other devices
    /// should not wait for them.
    pub(super) fn lock_class(&self, class: &ClassName) -> Result<StoreLock, StoreError> {
        lock(&self.parts_lock(class), FlockArg::LockExclusive)
    }

    /// Takes the lock for the parts of a class, unless another thread or instance has it.
    pub(crate) fn try_lock_class(&self, class: &ClassName) -> Option<StoreLock> {
        lock(&self.parts_lock(class), FlockArg::LockExclusiveNonblock).ok()
    }

    fn parts_lock(&self, class: &ClassName) -> PathBuf {
        self.above.join(format!("parts-{class}.lock"))
    }

    /// Reads the records of all claims. Also returns the errors of records that cannot be
    /// read. Such a claim is prepared again when the kubelet calls.
    pub fn read_all(&self) -> Result<(Vec<Record>, Unreadable), StoreError> {
        let (mut records, mut bad) = (Vec::new(), Vec::new());
        for uid in self.uids()? {
            match self.read(&uid) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(reason) => bad.push((uid, reason)),
            }
        }
        records.sort_by(|a, b| a.uid.cmp(&b.uid));
        Ok((records, bad))
    }

    /// Returns the uids of the claims that have records.
    pub(super) fn uids(&self) -> Result<Vec<ClaimUid>, StoreError> {
        let mut uids = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(self.failed())? {
            let name = entry.map_err(self.failed())?.file_name();
            let uid = uid_in_file_name(&name);
            uids.extend(uid.and_then(|uid| ClaimUid::try_from(uid.to_owned()).ok()));
        }
        Ok(uids)
    }

    /// Reads a claim's record. Returns `None` if there is none.
    pub(super) fn read(&self, uid: &ClaimUid) -> Result<Option<Record>, String> {
        let text = match read_own_text(&self.path(uid), MAX_RECORD) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| error.to_string())?,
        };
        let record: Record = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        match record.uid == *uid && record.version <= Record::VERSION {
            true => Ok(Some(record)),
            false => Err("it is of another claim or of a later version".to_owned()),
        }
    }

    /// Opens a claim's record. Returns `None` if there is none.
    pub(super) fn open_record(&self, uid: &ClaimUid) -> Result<Option<RecordFile>, StoreError> {
        let path = self.path(uid);
        match open_own_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::Io { path, error }),
            Ok(file) => Ok(Some(RecordFile(file))),
        }
    }

    /// Returns whether the file of a claim's record is still `seen`.
    pub(super) fn has_same_file(&self, uid: &ClaimUid, seen: &RecordFile) -> bool {
        let device_and_inode = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let current = fs::symlink_metadata(self.path(uid)).map(device_and_inode);
        current.is_ok_and(|current| {
            seen.0
                .metadata()
                .map(device_and_inode)
                .is_ok_and(|seen_number| seen_number == current)
        })
    }

    /// Writes a record. The file is replaced as a whole.
    pub(super) fn write(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.path(&record.uid);
        let text = serde_json::to_string_pretty(record).map_err(|error| StoreError::Json {
            path: path.clone(),
            error,
        })?;
        // A record that is too long to be read again would hide the devices of its claim.
        let result = match text.len() as u64 <= MAX_RECORD {
            true => replace_file(&path, 0o640, text.as_bytes()),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        };
        result.map_err(|error| StoreError::Io { path, error })
    }

    /// Removes unfinished files of processes that were killed while they wrote a record. Older
    /// versions named such a file `UID.tmp`. The caller has the lock, so that no other process
    /// is writing a record.
    pub(super) fn remove_unfinished(&self, _: &StoreLock) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.directory).map_err(self.failed())? {
            let name = entry.map_err(self.failed())?.file_name();
            let text = name.to_string_lossy();
            if text.starts_with(UNFINISHED_PREFIX) || text.ends_with(".tmp") {
                // An error is ignored, because an unfinished file does no harm.
                let _ = fs::remove_file(self.directory.join(&name));
            }
        }
        Ok(())
    }

    /// Removes a record, if it exists.
    pub(super) fn remove(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        remove_file(&self.path(uid))
    }

    fn failed(&self) -> impl Fn(io::Error) -> StoreError {
        |error| StoreError::Io {
            path: self.directory.clone(),
            error,
        }
    }

    fn path(&self, uid: &ClaimUid) -> PathBuf {
        self.directory.join(uid.file_name())
    }
}

/// Removes a file, if it exists.
pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::Io {
            path: path.to_owned(),
            error,
        }),
        _ => Ok(()),
    }
}

fn lock(path: &Path, mode: FlockArg) -> Result<StoreLock, StoreError> {
    let failed = |error: io::Error| StoreError::Io {
        path: path.to_owned(),
        error,
    };
    let locked = Flock::lock(open_lock_file(path).map_err(failed)?, mode);
    locked
        .map(StoreLock)
        .map_err(|(_, error)| failed(error.into()))
}
