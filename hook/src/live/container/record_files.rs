//! Reads, writes and removes the files of attachment records below `/run/boathook`, one for each
//! container. Only the holder of a container's lock writes its file, except for `detach` when the
//! lock is never released.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rooted_path::{FileReplacement, UNFINISHED_PREFIX, open_own_file, read_bounded};

use crate::live::container::lock::{ContainerLock, RecordWriteLock};
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
        let directory = create_record_directory(root)?;
        check_id(id)?;
        Ok(LockedRecord {
            lock: ContainerLock::take(&directory, id, limit)?,
            directory,
            id: id.to_owned(),
        })
    }

    /// Reads the container's record, which may be from an earlier start of the container.
    pub(crate) fn read(&self) -> io::Result<Option<AttachmentRecord>> {
        read_record(&self.directory.join(&self.id))
    }

    /// Returns the record of a container that is being started: the one that was written for the
    /// same start already, or else `new`, which replaces a record of an earlier start.
    ///
    /// # Errors
    ///
    /// If the record belongs to another container with the same id, which runs, or if it cannot be
    /// read: then it may belong to such a container.
    pub(crate) fn read_or_create(&self, new: AttachmentRecord) -> io::Result<AttachmentRecord> {
        match self.read()? {
            Some(known) if known.is_from_same_start(&new) => Ok(known),
            Some(known) if known.has_attachments() && !known.is_replaceable() => {
                let reason = "another container with the same id runs and has a record";
                Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
            }
            _ => Ok(new),
        }
    }

    /// Reads the record of this start of the container, changes it and writes it. No other process
    /// writes it meanwhile. Returns the written record, or `None` without a record of this start.
    pub(in crate::live) fn update(
        &self,
        start: &AttachmentRecord,
        change: impl FnOnce(&mut AttachmentRecord),
    ) -> io::Result<Option<AttachmentRecord>> {
        update_record(&self.directory, start, change)
    }

    /// Writes a record if the file still has `expected`. Returns false, and writes nothing, if
    /// another process has detached devices without the container's lock since then.
    pub(in crate::live) fn save_if_unchanged(
        &self,
        expected: Option<&AttachmentRecord>,
        record: &AttachmentRecord,
    ) -> io::Result<bool> {
        let _lock = RecordWriteLock::take(&self.directory)?;
        if self.read()?.as_ref() != expected {
            return Ok(false);
        }
        write_or_remove(&self.directory, record)?;
        Ok(true)
    }

    /// Writes `record` without the devices and rules that another process detached without the
    /// container's lock since this process read or wrote `saved`. Their rules are revoked once more,
    /// because this process may have allowed them again meanwhile.
    pub(in crate::live) fn save_merged(
        &self,
        saved: &AttachmentRecord,
        record: &mut AttachmentRecord,
    ) -> io::Result<()> {
        let lock = RecordWriteLock::take(&self.directory)?;
        let revoked = self.merge_detached(saved, record);
        let written = write_or_remove(&self.directory, record);
        drop(lock);
        match record.revoke(&revoked, record) {
            Ok(warnings) => warnings.iter().for_each(|warning| log::warning(warning)),
            Err(error) => log::warning(&log::chain(&error)),
        }
        written
    }

    /// Removes from `record` the devices, requests and rules that the file has no more, but `saved`
    /// has. Returns the removed rules.
    fn merge_detached(
        &self,
        saved: &AttachmentRecord,
        record: &mut AttachmentRecord,
    ) -> Vec<RecordedRule> {
        let current = match self.read() {
            Ok(Some(current)) if current == *saved => return Vec::new(),
            Ok(Some(current)) if current.is_from_same_start(saved) => current,
            Ok(None) if saved.has_content() => saved.without_content(),
            Ok(_) => return Vec::new(),
            Err(error) => {
                log::warning(&error.to_string());
                return Vec::new();
            }
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
        if current.awaited_requests != saved.awaited_requests {
            record
                .awaited_requests
                .clone_from(&current.awaited_requests);
        }
        if current.ended_requests != saved.ended_requests {
            record.ended_requests.clone_from(&current.ended_requests);
        }
        let revoked = saved
            .rules
            .iter()
            .filter(|rule| !current.rules.contains(rule));
        let revoked: Vec<RecordedRule> = revoked.cloned().collect();
        record.remove_revoked(&revoked);
        revoked
    }

    /// Writes a record. A record without content is removed instead.
    pub(crate) fn save(&self, record: &AttachmentRecord) -> io::Result<()> {
        let _lock = RecordWriteLock::take(&self.directory)?;
        write_or_remove(&self.directory, record)
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
pub(crate) fn prune_records(root: &Path) {
    for directory in list_record_directories(root) {
        let names =
            list_entries(&directory).filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<String> = names.collect();
        for name in &names {
            let id = match name.strip_prefix('.') {
                Some(name) => name.strip_suffix(".lock"),
                None => Some(&**name),
            };
            if let Some(id) = id {
                prune_container(&directory, id);
            }
        }
        let is_unfinished =
            |name: &&String| name.starts_with(UNFINISHED_PREFIX) && !name.ends_with(".lock");
        if names.iter().any(|name| is_unfinished(&name)) {
            // A process that writes a record holds this lock.
            let Ok(_lock) = RecordWriteLock::take(&directory) else {
                continue;
            };
            for name in names.iter().filter(is_unfinished) {
                let _ = fs::remove_file(directory.join(name));
            }
        }
    }
}

/// Removes the files of a container that has ended. Nothing is changed if another process holds the
/// container's lock.
fn prune_container(directory: &Path, id: &str) {
    let Ok(Some(lock)) = ContainerLock::try_take(directory, id) else {
        return;
    };
    let Ok(_write_lock) = RecordWriteLock::take(directory) else {
        return;
    };
    match read_record(&directory.join(id)) {
        Ok(Some(record)) if record.has_ended() => {
            let _ = fs::remove_file(directory.join(id));
            lock.remove_file();
        }
        Ok(None) => lock.remove_file(),
        // The container runs, or the record cannot be read and the container may run.
        Ok(Some(_)) | Err(_) => {}
    }
}

/// Reads the record of the container `id` without its lock. The record may be from an earlier
/// start of the container.
pub(crate) fn find_record(root: &Path, id: &str) -> io::Result<Option<AttachmentRecord>> {
    check_id(id)?;
    for directory in list_record_directories(root) {
        let found = read_record(&directory.join(id));
        if !matches!(found, Ok(None)) {
            return found;
        }
    }
    Ok(None)
}

/// Changes the record of this start of a container without the container's lock, which another
/// process holds and does not release. Does nothing if there is no such record.
pub(crate) fn update_without_lock(
    root: &Path,
    start: &AttachmentRecord,
    change: impl FnOnce(&mut AttachmentRecord),
) -> io::Result<()> {
    update_record(&create_record_directory(root)?, start, change).map(drop)
}

fn update_record(
    directory: &Path,
    start: &AttachmentRecord,
    change: impl FnOnce(&mut AttachmentRecord),
) -> io::Result<Option<AttachmentRecord>> {
    check_id(&start.id)?;
    let _lock = RecordWriteLock::take(directory)?;
    let current = read_record(&directory.join(&start.id))?;
    let Some(mut current) = current.filter(|it| it.is_from_same_start(start)) else {
        return Ok(None);
    };
    change(&mut current);
    write_or_remove(directory, &current)?;
    Ok(Some(current))
}

/// Reads the records of all containers that run. Logs each record that cannot be read.
pub(crate) fn read_and_report_records(root: &Path) -> Vec<AttachmentRecord> {
    let (records, errors) = read_records_and_errors(root);
    for error in errors {
        log::warning(&error);
    }
    records
}

/// Reads the records of all containers that run. Returns a message for each record that cannot be
/// read.
pub(crate) fn read_records_and_errors(root: &Path) -> (Vec<AttachmentRecord>, BTreeSet<String>) {
    let (mut records, mut errors) = (Vec::new(), BTreeSet::new());
    for record in iterate_records(root) {
        match record {
            Ok(record) => records.push(record),
            Err(error) => drop(errors.insert(error.to_string())),
        }
    }
    (records, errors)
}

/// Reads the records of all containers that run, and leaves out those that cannot be read.
pub(crate) fn read_records(root: &Path) -> Vec<AttachmentRecord> {
    iterate_records(root).filter_map(Result::ok).collect()
}

fn iterate_records(root: &Path) -> impl Iterator<Item = io::Result<AttachmentRecord>> {
    let directories = list_record_directories(root).into_iter();
    let entries = directories.flat_map(|directory| list_entries(&directory));
    let is_record = |entry: &DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let records = entries.filter(is_record);
    let records = records.filter_map(|entry| read_record(&entry.path()).transpose());
    records.filter(|record| !record.as_ref().is_ok_and(AttachmentRecord::has_ended))
}

/// Adds the attached devices of a container and its detached requests to its bundle, whose directory
/// is `directory`.
pub(crate) fn add_attached(bundle: &mut Bundle, directory: &Path, root: &Path) {
    let records = read_and_report_records(root);
    let record = records.iter().find(|record| record.bundle == directory);
    bundle.attached = record.map_or_else(Vec::new, AttachmentRecord::attached_grants);
    bundle.detached = record.map_or_else(Vec::new, AttachmentRecord::detached_requests);
}

/// Returns the directory of records, and creates it if it is missing.
pub(in crate::live) fn create_record_directory(root: &Path) -> io::Result<PathBuf> {
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

fn list_record_directories(root: &Path) -> Vec<PathBuf> {
    let parents = log::list_directories(root).into_iter();
    parents.map(|parent| parent.join(DIRECTORY)).collect()
}

fn list_entries(directory: &Path) -> impl Iterator<Item = DirEntry> + use<> {
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

/// Writes a record. A record without content is removed instead. The caller must hold the write lock.
fn write_or_remove(directory: &Path, record: &AttachmentRecord) -> io::Result<()> {
    if record.has_content() {
        return write_record(directory, record);
    }
    match fs::remove_file(directory.join(&record.id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn write_record(directory: &Path, record: &AttachmentRecord) -> io::Result<()> {
    check_id(&record.id)?;
    let text = serde_json::to_string(record)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let path = directory.join(&record.id);
    let mut replacement = FileReplacement::create(&path)?;
    let file = replacement.file();
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    // The directory is in memory, and a record is of one boot: there is nothing to flush to disk.
    // The rename is the last call that can fail, so that after an error the record is unchanged.
    replacement.put_in_place()
}

/// Reads a record. Returns `None` only if its file does not exist: a file that cannot be read is
/// an error.
fn read_record(path: &Path) -> io::Result<Option<AttachmentRecord>> {
    let file = match open_own_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.and_then(|file| read_bounded(&file, MAX_SIZE)),
    };
    let bytes = file.map_err(|error| unusable_record_error(path, &error.to_string()))?;
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
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

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
    fn records_of_ended_containers_and_files_of_killed_processes_are_removed() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("run/boathook").join(DIRECTORY);
        fs::create_dir_all(&directory).unwrap();
        write_record(&directory, &record("runs", std::process::id())).unwrap();
        write_record(&directory, &record("ended", 0x3fff_ffff)).unwrap();
        let left = [".runs.lock", ".ended.lock", ".killed.lock", ".boathook-1"];
        for left in left {
            fs::write(directory.join(left), "").unwrap();
        }
        fs::write(directory.join("damaged"), "{").unwrap();
        fs::write(directory.join(".damaged.lock"), "").unwrap();
        let held = ContainerLock::try_take(&directory, "held").unwrap();
        prune_records(top.path());
        let mut left: Vec<_> = list_entries(&directory)
            .map(|entry| entry.file_name())
            .collect();
        left.sort();
        let mut expected = vec![
            ".damaged.lock",
            ".held.lock",
            ".runs.lock",
            "damaged",
            "runs",
        ];
        assert_eq!(left, expected);
        drop(held);
        prune_records(top.path());
        let mut left: Vec<_> = list_entries(&directory)
            .map(|entry| entry.file_name())
            .collect();
        left.sort();
        expected.retain(|name| *name != ".held.lock");
        assert_eq!(left, expected);
        assert_eq!(
            read_records(top.path()),
            [record("runs", std::process::id())]
        );
        assert!(find_record(top.path(), "damaged").is_err());
        assert_eq!(find_record(top.path(), "none").unwrap(), None);
    }

    /// Creates a host's root with a record of this process, and locks the record.
    fn host_with_record() -> (tempfile::TempDir, AttachmentRecord, LockedRecord) {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("run")).unwrap();
        let mine = record("runs", std::process::id());
        let locked = LockedRecord::open(top.path(), "runs", Duration::ZERO).unwrap();
        locked.save(&mine).unwrap();
        (top, mine, locked)
    }

    /// Calls `repeat` while another thread calls `beside` 300 times.
    fn race(repeat: impl Fn(), beside: impl Fn(u32) + Sync) {
        thread::scope(|scope| {
            let beside = scope.spawn(|| (0..300).for_each(&beside));
            while !beside.is_finished() {
                repeat();
            }
        });
    }

    #[test]
    fn a_record_that_is_written_without_the_containers_lock_is_not_pruned() {
        let (top, mine, locked) = host_with_record();
        // The lock is released, and `detach` has not noticed it.
        drop(locked);
        let detach = |inode: u32| {
            let change = |record: &mut AttachmentRecord| record.cgroup_inode = inode.into();
            update_without_lock(top.path(), &mine, change).unwrap();
            let found = find_record(top.path(), "runs").unwrap().unwrap();
            assert_eq!(found.cgroup_inode, u64::from(inode));
        };
        race(|| prune_records(top.path()), detach);
    }

    #[test]
    fn a_detach_without_the_lock_is_not_overwritten() {
        let (top, mine, locked) = host_with_record();
        let changes = AtomicU64::new(0);
        let change_container = || {
            let as_read = locked.read().unwrap();
            let mut record = as_read.clone().unwrap();
            record.cgroup_inode += 1;
            if locked.save_if_unchanged(as_read.as_ref(), &record).unwrap() {
                changes.fetch_add(1, Ordering::Relaxed);
            }
        };
        let detach = |count: u32| {
            let mut before = 0_u32;
            let change = |record: &mut AttachmentRecord| {
                before = record.bundle.to_str().unwrap().parse().unwrap_or_default();
                record.bundle = PathBuf::from((before + 1).to_string());
            };
            update_without_lock(top.path(), &mine, change).unwrap();
            assert_eq!(before, count, "an earlier detach was overwritten");
        };
        race(change_container, detach);
        let record = locked.read().unwrap().unwrap();
        assert_eq!(record.cgroup_inode, changes.load(Ordering::Relaxed));
        // Another start of the container has its own record.
        let earlier = AttachmentRecord {
            start_time: 1,
            ..mine
        };
        update_without_lock(top.path(), &earlier, |_| panic!("another start")).unwrap();
    }
}
