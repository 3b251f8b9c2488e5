//! The files of attachment records below `/run/boathook`, one for each container. `detach`,
//! `follow`, `doctor` and `explain` read in them what was changed in containers that run.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rooted_path::{UNFINISHED_PREFIX, open_own_file, read_bounded, replace_file};

use crate::live::container::lock::ContainerLock;
use crate::live::record::{AttachedDevice, AttachmentRecord, RecordedRule};
use crate::log;
use crate::oci::Bundle;

/// The directory of records, beside the log.
const DIRECTORY: &str = "attached";

/// The size in bytes of the largest record that is read.
const MAX_SIZE: u64 = 4 << 20;

/// The file of one container's record, and the container's lock, which this process holds.
pub(crate) struct LockedRecord {
    directory: PathBuf,
    id: String,
    lock: ContainerLock,
}

impl LockedRecord {
    /// Locks the record of the container `id`, on the host whose root directory is `root`. Waits
    /// for at most `limit`.
    pub(crate) fn open(root: &Path, id: &str, limit: Duration) -> io::Result<Self> {
        let directory = make_directory(root)?;
        check_id(id)?;
        Ok(LockedRecord {
            lock: ContainerLock::take(&directory, id, limit)?,
            directory,
            id: id.to_owned(),
        })
    }

    /// Reads the container's record, which may be from an earlier start of the container.
    pub(crate) fn read(&self) -> io::Result<Option<AttachmentRecord>> {
        read(&self.directory.join(&self.id))
    }

    /// Returns the record of a container that is being started: the one that was written for the
    /// same start already, or else `new`, which replaces a record of an earlier start.
    ///
    /// # Errors
    ///
    /// If the record belongs to another container with the same id, which runs, or if it cannot be
    /// read: then it may belong to such a container.
    pub(crate) fn read_or_start(&self, new: AttachmentRecord) -> io::Result<AttachmentRecord> {
        match self.read()? {
            Some(known) if known.is_from_same_start(&new) => Ok(known),
            Some(known) if known.has_content() && !known.may_be_replaced() => {
                let reason = "another container with the same id runs and has a record";
                Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
            }
            _ => Ok(new),
        }
    }

    /// Removes from `record` what another process detached without the lock since this process
    /// wrote `saved`, and revokes its rules once more: a change of the container that was under
    /// way may have allowed them again.
    pub(in crate::live) fn merge_detached(
        &self,
        saved: &AttachmentRecord,
        record: &mut AttachmentRecord,
    ) {
        let current = match self.read() {
            Ok(Some(current)) if current == *saved => return,
            Ok(Some(current)) if current.is_from_same_start(saved) => current,
            Ok(None) if saved.has_content() => saved.without_content(),
            Ok(_) => return,
            Err(error) => return log::warning(&error.to_string()),
        };
        let is_removed = |device: &AttachedDevice| {
            let has = |record: &AttachmentRecord| {
                record
                    .devices
                    .iter()
                    .any(|it| it.device_ref() == device.device_ref())
            };
            has(saved) && !has(&current)
        };
        record.devices.retain(|device| !is_removed(device));
        if current.waiting != saved.waiting {
            record.waiting.clone_from(&current.waiting);
        }
        let revoked = saved
            .rules
            .iter()
            .filter(|rule| !current.rules.contains(rule));
        let revoked: Vec<RecordedRule> = revoked.cloned().collect();
        record.remove_revoked(&revoked);
        match record.revoke(&revoked, record) {
            Ok(warnings) => warnings.iter().for_each(|warning| log::warning(warning)),
            Err(error) => log::warning(&log::chain(&error)),
        }
    }

    /// Writes a record. A record without content is removed instead.
    pub(crate) fn save(&self, record: &AttachmentRecord) -> io::Result<()> {
        if record.has_content() {
            return write(&self.directory, record);
        }
        match fs::remove_file(self.directory.join(&record.id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for LockedRecord {
    /// Removes the lock file of a container that has no record.
    fn drop(&mut self) {
        if !self.directory.join(&self.id).exists() {
            self.lock.remove_file();
        }
    }
}

/// Removes the records and lock files of containers that have ended, and the unfinished files of
/// processes that were killed while they wrote a record. The caller must hold no lock.
pub(crate) fn prune(root: &Path) {
    for directory in find_directories(root) {
        let names = entries(&directory).filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<String> = names.collect();
        // A process that writes a record holds its container's lock.
        let mut is_any_locked = false;
        for name in &names {
            let id = match name.strip_prefix('.') {
                Some(name) => name.strip_suffix(".lock"),
                None => Some(&**name),
            };
            if let Some(id) = id {
                is_any_locked |= !prune_container(&directory, id);
            }
        }
        let is_unfinished =
            |name: &&String| name.starts_with(UNFINISHED_PREFIX) && !name.ends_with(".lock");
        for name in names.iter().filter(is_unfinished) {
            if !is_any_locked {
                let _ = fs::remove_file(directory.join(name));
            }
        }
    }
}

/// Removes the files of a container that has ended. Returns false, and changes nothing, if
/// another process holds the container's lock.
fn prune_container(directory: &Path, id: &str) -> bool {
    let Ok(Some(lock)) = ContainerLock::try_take(directory, id) else {
        return false;
    };
    match read(&directory.join(id)) {
        Ok(Some(record)) if record.has_ended() => {
            let _ = fs::remove_file(directory.join(id));
            lock.remove_file();
        }
        Ok(None) => lock.remove_file(),
        // The container runs, or the record cannot be read and the container may run.
        Ok(Some(_)) | Err(_) => {}
    }
    true
}

/// Reads the record of the container `id` without its lock. The record may be from an earlier
/// start of the container.
pub(crate) fn find(root: &Path, id: &str) -> io::Result<Option<AttachmentRecord>> {
    check_id(id)?;
    for directory in find_directories(root) {
        let found = read(&directory.join(id));
        if !matches!(found, Ok(None)) {
            return found;
        }
    }
    Ok(None)
}

/// Writes a record without the container's lock, which another process holds and does not
/// release.
pub(crate) fn save_without_lock(root: &Path, record: &AttachmentRecord) -> io::Result<()> {
    write(&make_directory(root)?, record)
}

/// Reads the records of all containers that run. Logs each record that cannot be read.
pub(crate) fn read_all_and_report(root: &Path) -> Vec<AttachmentRecord> {
    let (records, errors) = read_all_and_errors(root);
    for error in errors {
        log::warning(&error);
    }
    records
}

/// Reads the records of all containers that run. Returns a message for each record that cannot be
/// read.
pub(crate) fn read_all_and_errors(root: &Path) -> (Vec<AttachmentRecord>, BTreeSet<String>) {
    let (mut records, mut errors) = (Vec::new(), BTreeSet::new());
    for record in read_each(root) {
        match record {
            Ok(record) => records.push(record),
            Err(error) => drop(errors.insert(error.to_string())),
        }
    }
    (records, errors)
}

/// Reads the records of all containers that run, and leaves out those that cannot be read.
pub(crate) fn read_all(root: &Path) -> Vec<AttachmentRecord> {
    read_each(root).filter_map(Result::ok).collect()
}

fn read_each(root: &Path) -> impl Iterator<Item = io::Result<AttachmentRecord>> {
    let directories = find_directories(root).into_iter();
    let entries = directories.flat_map(|directory| entries(&directory));
    let is_record = |entry: &DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let records = entries.filter(is_record);
    let records = records.filter_map(|entry| read(&entry.path()).transpose());
    records.filter(|record| !record.as_ref().is_ok_and(AttachmentRecord::has_ended))
}

/// Adds the devices that were attached to a container to its bundle, whose directory is
/// `directory`.
pub(crate) fn add_attached(bundle: &mut Bundle, directory: &Path, root: &Path) {
    let records = read_all_and_report(root);
    let record = records.iter().find(|record| record.bundle == directory);
    bundle.attached = record.map_or_else(Vec::new, AttachmentRecord::attached_grants);
}

/// Returns the directory of records. Makes it if it is missing.
pub(in crate::live) fn make_directory(root: &Path) -> io::Result<PathBuf> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for parent in log::list_directories(root) {
        let directory = parent.join(DIRECTORY);
        match log::create_own_directory(&parent)
            .and_then(|()| log::create_own_directory(&directory))
        {
            Ok(()) => return Ok(directory),
            Err(error) => {
                let path = directory.display();
                failed = io::Error::new(error.kind(), format!("{path}: {error}"));
            }
        }
    }
    Err(failed)
}

fn find_directories(root: &Path) -> Vec<PathBuf> {
    let parents = log::list_directories(root).into_iter();
    parents.map(|parent| parent.join(DIRECTORY)).collect()
}

fn entries(directory: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

/// Checks that an id can be the name of a record's file. Runtimes allow letters, digits and
/// `_+-.` in ids.
fn check_id(id: &str) -> io::Result<()> {
    if id.is_empty() || id.starts_with('.') || id.contains('/') {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    Ok(())
}

fn write(directory: &Path, record: &AttachmentRecord) -> io::Result<()> {
    check_id(&record.id)?;
    let text = serde_json::to_string(record)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    replace_file(&directory.join(&record.id), 0o600, text.as_bytes())
}

/// Reads a record. Returns `None` only if its file does not exist: a file that cannot be read is
/// an error.
fn read(path: &Path) -> io::Result<Option<AttachmentRecord>> {
    let file = match open_own_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.and_then(|file| read_bounded(&file, MAX_SIZE)),
    };
    let bytes = file.map_err(|error| unusable(path, &error.to_string()))?;
    let record: AttachmentRecord =
        serde_json::from_slice(&bytes).map_err(|error| unusable(path, &error.to_string()))?;
    if path.file_name().is_none_or(|name| name != &*record.id) {
        return Err(unusable(path, "it is that of another container"));
    }
    Ok(Some(record))
}

fn unusable(path: &Path, reason: &str) -> io::Error {
    io::Error::other(format!(
        "{} is not a record of attached devices: {reason}; what its container has is not known: \
         remove the file once the container is started again",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, pid: u32) -> AttachmentRecord {
        let pid = i32::try_from(pid).unwrap();
        AttachmentRecord {
            id: id.to_owned(),
            pid,
            start_time: crate::container::read_start_time(pid).unwrap_or(1),
            has_all_rules: true,
            ..AttachmentRecord::default()
        }
    }

    #[test]
    fn what_ended_containers_and_killed_processes_left_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("run/boathook").join(DIRECTORY);
        fs::create_dir_all(&directory).unwrap();
        write(&directory, &record("runs", std::process::id())).unwrap();
        write(&directory, &record("ended", 0x3fff_ffff)).unwrap();
        let left = [".runs.lock", ".ended.lock", ".killed.lock", ".boathook-1"];
        for left in left {
            fs::write(directory.join(left), "").unwrap();
        }
        fs::write(directory.join("damaged"), "{").unwrap();
        fs::write(directory.join(".damaged.lock"), "").unwrap();
        let held = ContainerLock::try_take(&directory, "held").unwrap();
        prune(top.path());
        let mut left: Vec<_> = entries(&directory).map(|entry| entry.file_name()).collect();
        left.sort();
        // The one that has a lock may be writing a record.
        let mut expected = vec![
            ".boathook-1",
            ".damaged.lock",
            ".held.lock",
            ".runs.lock",
            "damaged",
            "runs",
        ];
        assert_eq!(left, expected);
        drop(held);
        prune(top.path());
        let mut left: Vec<_> = entries(&directory).map(|entry| entry.file_name()).collect();
        left.sort();
        expected.retain(|name| ![".boathook-1", ".held.lock"].contains(name));
        assert_eq!(left, expected);
        assert_eq!(read_all(top.path()), [record("runs", std::process::id())]);
        assert!(find(top.path(), "damaged").is_err());
        assert_eq!(find(top.path(), "none").unwrap(), None);
    }
}
