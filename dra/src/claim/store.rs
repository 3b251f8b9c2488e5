//! Stores the records of prepared claims in a directory.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use device_class::name::ClassName;
use host_files::rooted_path::{
    TEMPORARY_NAME_PREFIX, open_lock_file, open_own_file, read_own_text, replace_file,
};
use injection_plan::claim_record::{MAX_RECORD_BYTES, parse_uid_from_file_name, records_dir_path};
use nix::fcntl::{Flock, FlockArg};

use super::record::{ClaimUid, Record};

/// The reason why claim records cannot be read or written.
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

/// The directory with the claim records, and its locks. Two instances of this program share the
/// directory during an update.
#[derive(Debug, Clone)]
pub struct ClaimStore {
    records_dir: PathBuf,
    /// The directory of the driver, which contains the lock files.
    driver_directory: PathBuf,
}

/// A file lock that this process holds. Dropping this value releases the lock.
#[derive(Debug)]
pub(crate) struct StoreLock(#[expect(dead_code)] Flock<File>);

/// The open file of a claim record. It identifies one preparation of the claim, because each
/// preparation creates a new file. No other file can get the same inode number while this file is
/// open.
#[derive(Debug)]
pub(crate) struct RecordFile(File);

/// The uids of the claims whose records cannot be read, each with the error.
pub type UnreadableRecords = Vec<(ClaimUid, String)>;

impl ClaimStore {
    /// Opens the directory of records below `driver_directory`. Creates both directories if they
    /// are missing.
    pub fn open(driver_directory: &Path) -> Result<Self, StoreError> {
        let directory = records_dir_path(driver_directory);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750);
        let io_error = |path: &Path, error| StoreError::Io {
            path: path.to_owned(),
            error,
        };
        builder
            .create(&directory)
            .map_err(|error| io_error(&directory, error))?;
        let driver_directory = driver_directory.to_owned();
        Ok(ClaimStore {
            records_dir: directory,
            driver_directory,
        })
    }

    /// Takes the lock that protects the records and CDI specifications of all claims. Waits until
    /// other threads and instances release it.
    pub(super) fn lock_records(&self) -> Result<StoreLock, StoreError> {
        let path = self.driver_directory.join("serialize.lock");
        take_lock(&path, FlockArg::LockExclusive)
    }

    /// Takes the lock that protects the parts of a class. Waits until other threads and instances
    /// release it. Each class has its own lock, because programs that create parts may run for a
    /// long time.
    pub(super) fn lock_class(&self, class: &ClassName) -> Result<StoreLock, StoreError> {
        take_lock(&self.parts_lock_path(class), FlockArg::LockExclusive)
    }

    /// Takes the lock that protects the parts of a class. Returns `None` if another thread or
    /// instance holds the lock.
    pub(crate) fn try_lock_class(&self, class: &ClassName) -> Option<StoreLock> {
        take_lock(
            &self.parts_lock_path(class),
            FlockArg::LockExclusiveNonblock,
        )
        .ok()
    }

    fn parts_lock_path(&self, class: &ClassName) -> PathBuf {
        self.driver_directory.join(format!("parts-{class}.lock"))
    }

    /// Reads the records of all claims, sorted by uid. Also returns the errors of unreadable
    /// records.
    pub fn read_all_records(&self) -> Result<(Vec<Record>, UnreadableRecords), StoreError> {
        let (mut records, mut unreadable_records) = (Vec::new(), Vec::new());
        for uid in self.list_uids()? {
            match self.read_record(&uid) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(reason) => unreadable_records.push((uid, reason)),
            }
        }
        records.sort_by(|a, b| a.uid.cmp(&b.uid));
        Ok((records, unreadable_records))
    }

    /// Returns the uids of the claims that have records, read from the names of the record files.
    pub(super) fn list_uids(&self) -> Result<Vec<ClaimUid>, StoreError> {
        let mut uids = Vec::new();
        for entry in fs::read_dir(&self.records_dir).map_err(self.to_store_error())? {
            let name = entry.map_err(self.to_store_error())?.file_name();
            let uid = parse_uid_from_file_name(&name);
            uids.extend(uid.and_then(|uid| ClaimUid::try_from(uid.to_owned()).ok()));
        }
        Ok(uids)
    }

    /// Reads the record of a claim. Returns `None` if the claim has no record. The error is the
    /// reason why an existing record cannot be used.
    pub(super) fn read_record(&self, uid: &ClaimUid) -> Result<Option<Record>, String> {
        let text = match read_own_text(&self.record_path(uid), MAX_RECORD_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| error.to_string())?,
        };
        let record: Record = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if record.uid == *uid && record.version <= Record::VERSION {
            Ok(Some(record))
        } else {
            Err("it is of another claim or of a later version".to_owned())
        }
    }

    /// Opens the record of a claim, so that the file can be compared with a later one. Returns
    /// `None` if the claim has no record.
    pub(super) fn open_record(&self, uid: &ClaimUid) -> Result<Option<RecordFile>, StoreError> {
        let path = self.record_path(uid);
        match open_own_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::Io { path, error }),
            Ok(file) => Ok(Some(RecordFile(file))),
        }
    }

    /// Returns whether the record of a claim is still the file `earlier_file`, so that the claim
    /// was not prepared again meanwhile.
    pub(super) fn is_record_unchanged(&self, uid: &ClaimUid, earlier_file: &RecordFile) -> bool {
        let to_file_id = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let current_id = fs::symlink_metadata(self.record_path(uid)).map(to_file_id);
        current_id.is_ok_and(|current_id| {
            earlier_file
                .0
                .metadata()
                .map(to_file_id)
                .is_ok_and(|earlier_id| earlier_id == current_id)
        })
    }

    /// Writes a record. The file is replaced atomically.
    pub(super) fn write_record(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.record_path(&record.uid);
        let text = serde_json::to_string_pretty(record).map_err(|error| StoreError::Json {
            path: path.clone(),
            error,
        })?;
        // A record beyond the size limit is refused. It could not be read again, so the devices of
        // its claim would seem to be free.
        let result = if text.len() as u64 <= MAX_RECORD_BYTES {
            replace_file(&path, 0o640, text.as_bytes())
        } else {
            Err(io::ErrorKind::FileTooLarge.into())
        };
        result.map_err(|error| StoreError::Io { path, error })
    }

    /// Removes temporary files that killed processes have left. Earlier versions named these files
    /// `UID.tmp`. The caller must hold the lock, so that no other process is writing a record.
    pub(super) fn remove_unfinished_files(&self, _: &StoreLock) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.records_dir).map_err(self.to_store_error())? {
            let name = entry.map_err(self.to_store_error())?.file_name();
            let text = name.to_string_lossy();
            if text.starts_with(TEMPORARY_NAME_PREFIX) || text.ends_with(".tmp") {
                // An error is ignored, because a temporary file does no harm.
                let _ = fs::remove_file(self.records_dir.join(&name));
            }
        }
        Ok(())
    }

    pub(super) fn remove_record(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        remove_file(&self.record_path(uid))
    }

    fn to_store_error(&self) -> impl Fn(io::Error) -> StoreError {
        |error| StoreError::Io {
            path: self.records_dir.clone(),
            error,
        }
    }

    fn record_path(&self, uid: &ClaimUid) -> PathBuf {
        self.records_dir.join(uid.file_name())
    }
}

pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::Io {
            path: path.to_owned(),
            error,
        }),
        _ => Ok(()),
    }
}

fn take_lock(path: &Path, mode: FlockArg) -> Result<StoreLock, StoreError> {
    let io_error = |error: io::Error| StoreError::Io {
        path: path.to_owned(),
        error,
    };
    let lock_result = Flock::lock(open_lock_file(path).map_err(io_error)?, mode);
    lock_result
        .map(StoreLock)
        .map_err(|(_, error)| io_error(error.into()))
}
