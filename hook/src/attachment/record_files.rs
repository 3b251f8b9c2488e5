//! Reads, writes and removes the files of attachment records below `/run/boathook`. Each container
//! has one file.
//!
//! Normally, only the process that holds a container's lock writes the container's file. The
//! exception is `boathook detach`: if another process does not release the lock in time, `detach`
//! writes the file without the lock.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host_files::rooted_path::{
    FileReplacement, TEMPORARY_NAME_PREFIX, open_own_file, read_bounded,
};

use crate::attachment::lock::{ContainerLock, RecordWriteLock};
use crate::attachment::record::{AttachmentRecord, ContainerDevice, RecordedRule};
use crate::log;
use crate::oci::Bundle;

/// The name of the directory of the attachment records (`/run/boathook/attached`). Its parent is
/// also the directory of the log.
const RECORD_DIR_NAME: &str = "attached";

/// The maximum size in bytes of a record file. A larger record is neither written nor read.
const MAX_RECORD_BYTES: u64 = 4 << 20;

/// The content of all record files of the host.
#[derive(Default)]
pub struct StoredRecords {
    /// The records of the running containers.
    pub records: Vec<AttachmentRecord>,
    /// An error message for each record that cannot be read.
    pub errors: BTreeSet<String>,
    /// Whether at least one record belongs to a container that has ended. [`prune_records`] can
    /// remove such a record.
    pub has_ended_container: bool,
}

/// The record file of one container. This process holds the lock of the container as long as this
/// value exists.
pub struct LockedRecord {
    record_dir: PathBuf,
    id: String,
    lock: ContainerLock,
}

impl LockedRecord {
    /// Opens the record file of the container `id`, and locks the container. Waits for the lock for
    /// at most `timeout`.
    pub fn open(host_root: &Path, id: &str, timeout: Duration) -> io::Result<Self> {
        let record_dir = create_record_dir(host_root)?;
        check_id(id)?;
        Ok(LockedRecord {
            lock: ContainerLock::acquire(&record_dir, id, timeout)?,
            record_dir,
            id: id.to_owned(),
        })
    }

    /// Reads the attachment record of the container. The record may be from a previous start of the
    /// container. Returns `None` if there is no record file.
    pub fn read(&self) -> io::Result<Option<AttachmentRecord>> {
        read_record(&self.record_dir.join(&self.id))
    }

    /// Returns the record to use for a container that is being started. If the file contains a
    /// record of the same start, because the hook runs twice, returns this record. Otherwise
    /// returns `new_record`, even if the file contains a record of a previous start.
    ///
    /// # Errors
    ///
    /// Fails if the file contains the record of another running container with the same id. Also
    /// fails if the file cannot be read, because it may contain such a record.
    pub fn read_or_create(&self, new_record: AttachmentRecord) -> io::Result<AttachmentRecord> {
        match self.read()? {
            Some(existing_record) if existing_record.is_from_same_start(&new_record) => {
                Ok(existing_record)
            }
            Some(existing_record)
                if existing_record.has_attachments() && !existing_record.is_replaceable() =>
            {
                let reason = "another container with the same id runs and has a record";
                Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
            }
            _ => Ok(new_record),
        }
    }

    /// Reads the container's record, changes it with `change_record` and writes it. Meanwhile no
    /// other process can write it. Returns the written record. Returns `None`, and writes nothing,
    /// if the file has no record of the same start as `start_record`.
    pub fn update(
        &self,
        start_record: &AttachmentRecord,
        change_record: impl FnOnce(&mut AttachmentRecord),
    ) -> io::Result<Option<AttachmentRecord>> {
        update_record(&self.record_dir, start_record, change_record)
    }

    /// Writes `record` if the file still contains `expected_record`. Otherwise writes nothing and
    /// returns false. The file is different if `boathook detach` changed it without the container's
    /// lock.
    pub fn save_if_unchanged(
        &self,
        expected_record: Option<&AttachmentRecord>,
        record: &AttachmentRecord,
    ) -> io::Result<bool> {
        let _lock = RecordWriteLock::acquire(&self.record_dir)?;
        if self.read()?.as_ref() != expected_record {
            return Ok(false);
        }
        write_or_remove(&self.record_dir, record)?;
        Ok(true)
    }

    /// Writes `record`, but first removes the devices that `boathook detach` has detached without
    /// the container's lock. They are the devices that `saved_record` has, and that the file no
    /// longer has. `saved_record` is the content that this process last read or wrote.
    ///
    /// Also revokes the device rules of these devices again, because this process may have allowed
    /// them after `detach` had revoked them.
    pub fn save_without_detached_devices(
        &self,
        saved_record: &AttachmentRecord,
        record: &mut AttachmentRecord,
    ) -> io::Result<()> {
        let write_lock = RecordWriteLock::acquire(&self.record_dir)?;
        let revoked_rules = self.remove_detached_content(saved_record, record);
        let write_result = write_or_remove(&self.record_dir, record);
        drop(write_lock);
        match record.revoke_rules(&revoked_rules, record) {
            Ok(warnings) => warnings.iter().for_each(|warning| log::warning(warning)),
            Err(error) => log::warning(&log::format_error_chain(&error)),
        }
        write_result
    }

    /// Removes the devices, requests and rules from `record` that another process has removed from
    /// the file. They are in `saved_record`, and are no longer in the file. Returns the removed
    /// rules.
    fn remove_detached_content(
        &self,
        saved_record: &AttachmentRecord,
        record: &mut AttachmentRecord,
    ) -> Vec<RecordedRule> {
        let current_record = match self.read() {
            Ok(Some(current_record)) if current_record == *saved_record => return Vec::new(),
            Ok(Some(current_record)) if current_record.is_from_same_start(saved_record) => {
                current_record
            }
            Ok(None) if saved_record.has_content() => saved_record.without_attachments(),
            Ok(_) => return Vec::new(),
            Err(error) => {
                log::warning(&error.to_string());
                return Vec::new();
            }
        };
        let is_removed = |device: &ContainerDevice| {
            let has_device = |record: &AttachmentRecord| {
                record
                    .devices
                    .iter()
                    .any(|recorded_device| recorded_device.device_ref() == device.device_ref())
            };
            has_device(saved_record) && !has_device(&current_record)
        };
        record.devices.retain(|device| !is_removed(device));
        if current_record.awaited_requests != saved_record.awaited_requests {
            let previous_requests = std::mem::replace(
                &mut record.awaited_requests,
                current_record.awaited_requests.clone(),
            );
            for request in &mut record.awaited_requests {
                let mut previous_requests = previous_requests.iter();
                let previous_request =
                    previous_requests.find(|previous| previous.is_same_request(request));
                // This process may have found a device for the request since it read the record. So
                // the request keeps the id of this device.
                if let Some(previous_request) = previous_request {
                    request.device_id.clone_from(&previous_request.device_id);
                }
            }
        }
        if current_record.cancelled_requests != saved_record.cancelled_requests {
            record
                .cancelled_requests
                .clone_from(&current_record.cancelled_requests);
        }
        let revoked_rules = saved_record
            .rules
            .iter()
            .filter(|rule| !current_record.rules.contains(rule));
        let revoked_rules: Vec<RecordedRule> = revoked_rules.cloned().collect();
        record.remove_revoked_rules(&revoked_rules);
        revoked_rules
    }

    /// Writes the record to its file. Removes the file instead if the record has no content.
    pub fn save(&self, record: &AttachmentRecord) -> io::Result<()> {
        let _lock = RecordWriteLock::acquire(&self.record_dir)?;
        write_or_remove(&self.record_dir, record)
    }
}

impl Drop for LockedRecord {
    /// Removes the lock file if the container has no record, so that no file of an ended container
    /// remains.
    fn drop(&mut self) {
        if !self.record_dir.join(&self.id).exists() {
            self.lock.remove_file();
        }
    }
}

/// Removes the records and lock files of containers that have ended, and the temporary files of
/// processes that were killed while they wrote a record.
///
/// The caller must hold neither the lock of a container nor the write lock of the directory,
/// because this function acquires both.
pub fn prune_records(host_root: &Path) {
    for record_dir in list_record_dirs(host_root) {
        let names =
            list_entries(&record_dir).filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<String> = names.collect();
        for name in &names {
            let id = match name.strip_prefix('.') {
                Some(name) => name.strip_suffix(".lock"),
                None => Some(&**name),
            };
            if let Some(id) = id {
                prune_record(&record_dir, id);
            }
        }
        let is_temporary_file =
            |name: &&String| name.starts_with(TEMPORARY_NAME_PREFIX) && !name.ends_with(".lock");
        if names.iter().any(|name| is_temporary_file(&name)) {
            // The write lock ensures that no other process is writing one of these temporary files
            // now.
            let Ok(_lock) = RecordWriteLock::acquire(&record_dir) else {
                continue;
            };
            for name in names.iter().filter(is_temporary_file) {
                let _ = fs::remove_file(record_dir.join(name));
            }
        }
    }
}

/// Removes the record and the lock file of a container that has ended. Does nothing if the
/// container is running, or if another process holds the container's lock.
fn prune_record(record_dir: &Path, id: &str) {
    let Ok(Some(lock)) = ContainerLock::try_acquire(record_dir, id) else {
        return;
    };
    let Ok(_write_lock) = RecordWriteLock::acquire(record_dir) else {
        return;
    };
    match read_record(&record_dir.join(id)) {
        Ok(Some(record)) if record.has_ended() => {
            let _ = fs::remove_file(record_dir.join(id));
            lock.remove_file();
        }
        Ok(None) => lock.remove_file(),
        // The container is running. If its record cannot be read, it may be running. So the record
        // is kept.
        Ok(Some(_)) | Err(_) => {}
    }
}

/// Reads the attachment record of the container `id` without the container's lock, so that no other
/// process is delayed. The record may be from a previous start of the container.
pub fn find_record(host_root: &Path, id: &str) -> io::Result<Option<AttachmentRecord>> {
    check_id(id)?;
    for record_dir in list_record_dirs(host_root) {
        let record = read_record(&record_dir.join(id));
        if !matches!(record, Ok(None)) {
            return record;
        }
    }
    Ok(None)
}

/// Changes the record of a container without the container's lock. `boathook detach` does this if
/// another process does not release the lock in time. Does nothing if no record of the same start
/// as `start_record` exists.
pub fn update_record_without_lock(
    host_root: &Path,
    start_record: &AttachmentRecord,
    change_record: impl FnOnce(&mut AttachmentRecord),
) -> io::Result<()> {
    update_record(&create_record_dir(host_root)?, start_record, change_record).map(drop)
}

fn update_record(
    record_dir: &Path,
    start_record: &AttachmentRecord,
    change_record: impl FnOnce(&mut AttachmentRecord),
) -> io::Result<Option<AttachmentRecord>> {
    check_id(&start_record.id)?;
    let _lock = RecordWriteLock::acquire(record_dir)?;
    let record = read_record(&record_dir.join(&start_record.id))?;
    let Some(mut record) = record.filter(|record| record.is_from_same_start(start_record)) else {
        return Ok(None);
    };
    change_record(&mut record);
    write_or_remove(record_dir, &record)?;
    Ok(Some(record))
}

/// Reads the records of all running containers. Logs a warning for each record that cannot be read,
/// and continues.
pub fn read_records_and_log_errors(host_root: &Path) -> Vec<AttachmentRecord> {
    let stored = read_stored_records(host_root);
    for error in stored.errors {
        log::warning(&error);
    }
    stored.records
}

/// Reads the records of all running containers of the host. For a record that cannot be read, the
/// result contains an error message.
pub fn read_stored_records(host_root: &Path) -> StoredRecords {
    let mut stored = StoredRecords::default();
    for record in iterate_records(host_root) {
        match record {
            Ok(record) if record.has_ended() => stored.has_ended_container = true,
            Ok(record) => stored.records.push(record),
            Err(error) => drop(stored.errors.insert(error.to_string())),
        }
    }
    stored
}

/// Reads the records of all running containers. Records that cannot be read are skipped.
pub fn read_records(host_root: &Path) -> Vec<AttachmentRecord> {
    read_stored_records(host_root).records
}

fn iterate_records(host_root: &Path) -> impl Iterator<Item = io::Result<AttachmentRecord>> {
    let directories = list_record_dirs(host_root).into_iter();
    let entries = directories.flat_map(|record_dir| list_entries(&record_dir));
    let is_record = |entry: &DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let records = entries.filter(is_record);
    records.filter_map(|entry| read_record(&entry.path()).transpose())
}

/// Adds the requests to `bundle` that are not in config.json, but in the container's attachment
/// record: the requests of `boathook attach`, and those whose devices were detached. The record is
/// found by the path `bundle_dir`.
pub fn add_recorded_requests(bundle: &mut Bundle, bundle_dir: &Path, host_root: &Path) {
    let records = read_records_and_log_errors(host_root);
    let record = records
        .iter()
        .find(|record| record.bundle_dir == bundle_dir);
    bundle.attach_requests = record.map_or_else(Vec::new, AttachmentRecord::list_attach_requests);
    bundle.detached_requests =
        record.map_or_else(Vec::new, AttachmentRecord::list_detached_requests);
}

/// Returns the directory of the attachment records, and creates it if it does not exist. The path
/// is `/run/boathook/attached`, or `/run/user/UID/boathook/attached` for a rootless engine.
pub fn create_record_dir(host_root: &Path) -> io::Result<PathBuf> {
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for parent in log::list_log_directories(host_root) {
        let record_dir = parent.join(RECORD_DIR_NAME);
        match log::create_own_directory(&parent)
            .and_then(|()| log::create_own_directory(&record_dir))
        {
            Ok(()) => return Ok(record_dir),
            Err(error) => {
                let path = record_dir.display();
                last_error = io::Error::new(error.kind(), format!("{path}: {error}"));
            }
        }
    }
    Err(last_error)
}

fn list_record_dirs(host_root: &Path) -> Vec<PathBuf> {
    let parents = log::list_log_directories(host_root).into_iter();
    parents.map(|parent| parent.join(RECORD_DIR_NAME)).collect()
}

fn list_entries(record_dir: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(record_dir).into_iter().flatten().flatten()
}

/// Fails if a container's id cannot be the name of its record file. Runtimes allow letters, digits
/// and `_+-.` in ids. A leading dot is not allowed, because the names of lock files and temporary
/// files begin with a dot.
fn check_id(id: &str) -> io::Result<()> {
    if id.is_empty() || id.starts_with('.') || id.contains('/') {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    Ok(())
}

/// Writes the record to its file, or removes the file if the record has no content. The caller must
/// hold the write lock.
fn write_or_remove(record_dir: &Path, record: &AttachmentRecord) -> io::Result<()> {
    if record.has_content() {
        return write_record(record_dir, record);
    }
    match fs::remove_file(record_dir.join(&record.id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn write_record(record_dir: &Path, record: &AttachmentRecord) -> io::Result<()> {
    check_id(&record.id)?;
    let text = serde_json::to_string(record)?;
    if text.len() as u64 > MAX_RECORD_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let path = record_dir.join(&record.id);
    let mut replacement = FileReplacement::create(&path)?;
    let file = replacement.file();
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    // The file is not flushed to disk (fsync(2)), because `/run` is in memory and a record is only
    // valid until the next boot. The rename is the last call that can fail. So after an error, the
    // previous record is unchanged.
    replacement.commit()
}

/// Reads a record file. Returns `None` if the file does not exist. Fails if it is not a valid
/// record of the container whose id is the file name.
fn read_record(path: &Path) -> io::Result<Option<AttachmentRecord>> {
    let content = match open_own_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.and_then(|file| read_bounded(&file, MAX_RECORD_BYTES)),
    };
    let bytes = content.map_err(|error| unusable_record_error(path, &error.to_string()))?;
    let record: AttachmentRecord = serde_json::from_slice(&bytes)
        .map_err(|error| unusable_record_error(path, &error.to_string()))?;
    if path.file_name().is_none_or(|name| name != &*record.id) {
        return Err(unusable_record_error(
            path,
            "it is that of another container",
        ));
    }
    Ok(Some(record))
}

fn unusable_record_error(path: &Path, reason: &str) -> io::Error {
    io::Error::other(format!(
        "{} is not a record of attached devices: {reason}; what its container has is not known: \
         remove the file once the container is started again",
        path.display()
    ))
}

#[cfg(test)]
mod tests;
