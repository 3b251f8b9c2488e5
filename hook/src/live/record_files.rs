//! The files of records below `/run/boathook`, one for each container, by which `detach`,
//! `follow`, `doctor` and `explain` know what was changed in containers that run.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device_class::device::DeviceRule;
use rooted_path::{UNFINISHED_PREFIX, open_own_file, read_bounded, replace_file};

use super::attachment_record::AttachmentRecord;
use super::lock::ContainerLock;
use crate::log;
use crate::oci::Bundle;

/// The directory in that of the log.
const NAME: &str = "attached";

/// The largest record that is read, in bytes.
const MAX: u64 = 4 << 20;

/// The directory of records, and the lock of one container's.
pub(crate) struct LockedRecord {
    directory: PathBuf,
    id: String,
    lock: ContainerLock,
}

impl LockedRecord {
    /// Locks the record of the container `id` on the host whose root is at `root`.
    pub(crate) fn open(root: &Path, id: &str, patience: Duration) -> io::Result<Self> {
        let directory = directory(root)?;
        check_name(id)?;
        Ok(LockedRecord {
            lock: ContainerLock::take(&directory, id, patience)?,
            directory,
            id: id.to_owned(),
        })
    }

    /// The container's record, of whatever start of it.
    pub(crate) fn read(&self) -> io::Result<Option<AttachmentRecord>> {
        read(&self.directory.join(&self.id))
    }

    /// The record of a container that is being started: `container`, or what was recorded of
    /// the same start already. A record of an earlier start or a damaged one is replaced.
    /// `None`: another container with the same id runs, and the record is that one's.
    pub(crate) fn read_or_start(&self, container: AttachmentRecord) -> Option<AttachmentRecord> {
        match self.read().ok().flatten() {
            Some(known) if known.is_of_same_start(&container) => Some(known),
            Some(known) if known.has_content() && !known.may_be_replaced() => None,
            _ => Some(container),
        }
    }

    /// Writes a record, or removes that of a container that has nothing more.
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
    fn drop(&mut self) {
        if !self.directory.join(&self.id).exists() {
            self.lock.remove_file();
        }
    }
}

/// Removes the records of containers that have ended, and what processes that were killed left
/// beside records. The caller has no container's lock.
pub(crate) fn prune(root: &Path) {
    for directory in directories(root) {
        let names = entries(&directory).filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<String> = names.collect();
        // Whoever writes a record has its container's lock.
        let mut is_any_written = false;
        for name in &names {
            let id = match name.strip_prefix('.') {
                Some(name) => name.strip_suffix(".lock"),
                None => Some(&**name),
            };
            if let Some(id) = id {
                is_any_written |= prune_one(&directory, id).is_none();
            }
        }
        let is_unfinished = |name: &&String| name.starts_with(UNFINISHED_PREFIX);
        for name in names.iter().filter(is_unfinished) {
            if !is_any_written {
                let _ = fs::remove_file(directory.join(name));
            }
        }
    }
}

/// Removes the files of a container that has ended. `None`: another process has its lock.
fn prune_one(directory: &Path, id: &str) -> Option<()> {
    let lock = ContainerLock::try_take(directory, id).ok()??;
    match read(&directory.join(id)) {
        Ok(Some(record)) if record.has_ended() => {
            let _ = fs::remove_file(directory.join(id));
            lock.remove_file();
        }
        Ok(None) => lock.remove_file(),
        // It is, or may be, of a container that runs.
        Ok(Some(_)) | Err(_) => {}
    }
    Some(())
}

/// The record of the container with this id, of whatever start of it, without its lock.
pub(crate) fn find(root: &Path, id: &str) -> io::Result<Option<AttachmentRecord>> {
    check_name(id)?;
    let mut found = Ok(None);
    for directory in directories(root) {
        found = read(&directory.join(id));
        if !matches!(found, Ok(None)) {
            break;
        }
    }
    found
}

/// Writes a record while another process has the container's lock for ever.
pub(crate) fn save_without_lock(root: &Path, record: &AttachmentRecord) -> io::Result<()> {
    write(&directory(root)?, record)
}

/// All records of containers that run. One that cannot be read is reported.
pub(crate) fn all_reported(root: &Path) -> Vec<AttachmentRecord> {
    let report = |error: &io::Error| log::warning(&error.to_string());
    let records = read_all(root).inspect(|record| {
        let _ = record.as_ref().inspect_err(|error| report(error));
    });
    records.filter_map(Result::ok).collect()
}

/// All records of containers that run and that can be read.
pub(crate) fn all(root: &Path) -> Vec<AttachmentRecord> {
    read_all(root).filter_map(Result::ok).collect()
}

fn read_all(root: &Path) -> impl Iterator<Item = io::Result<AttachmentRecord>> {
    let directories = directories(root).into_iter();
    let entries = directories.flat_map(|directory| entries(&directory));
    let is_record = |entry: &DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let records = entries.filter(is_record);
    let records = records.filter_map(|entry| read(&entry.path()).transpose());
    records.filter(|record| !record.as_ref().is_ok_and(AttachmentRecord::has_ended))
}

/// Adds to a container's configuration what is attached to it.
pub(crate) fn add_attached(bundle: &mut Bundle, directory: &Path, root: &Path) {
    let records = all_reported(root).into_iter();
    let mut its = records.filter(|record| record.bundle == directory);
    bundle.attached = its.next().map(|it| it.attached()).unwrap_or_default();
}

/// The directory of records, made if it is missing.
pub(super) fn directory(root: &Path) -> io::Result<PathBuf> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for parent in log::directories(root) {
        let directory = parent.join(NAME);
        match log::own_directory(&parent).and_then(|()| log::own_directory(&directory)) {
            Ok(()) => return Ok(directory),
            Err(error) => {
                let path = directory.display();
                failed = io::Error::new(error.kind(), format!("{path}: {error}"));
            }
        }
    }
    Err(failed)
}

fn directories(root: &Path) -> Vec<PathBuf> {
    let parents = log::directories(root).into_iter();
    parents.map(|parent| parent.join(NAME)).collect()
}

fn entries(directory: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

/// Runtimes allow letters, digits and `_+-.` in an id, which is a file's name here.
fn check_name(id: &str) -> io::Result<()> {
    match id.is_empty() || id.starts_with('.') || id.contains('/') {
        true => Err(io::ErrorKind::InvalidFilename.into()),
        false => Ok(()),
    }
}

fn write(directory: &Path, record: &AttachmentRecord) -> io::Result<()> {
    check_name(&record.id)?;
    let text = serde_json::to_string(record)?;
    replace_file(&directory.join(&record.id), 0o600, text.as_bytes())
}

fn read(path: &Path) -> io::Result<Option<AttachmentRecord>> {
    // Only a file that cannot be opened is absent, and not one that cannot be read.
    let file = match open_own_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.and_then(|file| read_bounded(&file, MAX)),
    };
    let bytes = file.map_err(|error| unusable(path, &error.to_string()))?;
    let record: AttachmentRecord =
        serde_json::from_slice(&bytes).map_err(|error| unusable(path, &error.to_string()))?;
    let mut rules = record.rules.iter().chain(&record.withdrawn);
    if let Some(rule) = rules.find(|it| DeviceRule::parse(&it.rule).is_none()) {
        return Err(unusable(
            path,
            &format!("{:?} is no device rule", rule.rule),
        ));
    }
    match path.file_name().is_some_and(|name| name == &*record.id) {
        true => Ok(Some(record)),
        false => Err(unusable(path, "it is that of another container")),
    }
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
            started: crate::container::start_time_of(pid).unwrap_or(1),
            whole: true,
            ..AttachmentRecord::default()
        }
    }

    #[test]
    fn what_ended_containers_and_killed_processes_left_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("run/boathook").join(NAME);
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
        assert_eq!(all(top.path()), [record("runs", std::process::id())]);
        assert!(find(top.path(), "damaged").is_err());
        assert_eq!(find(top.path(), "none").unwrap(), None);
    }
}
