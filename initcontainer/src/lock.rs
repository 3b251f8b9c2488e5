//! The installer lock, which lets only one installer at a time change a host.
//!
//! The lock is flock(2) on a file that only root can open, because every process that can open a
//! file can lock it. The kernel releases the lock when the process ends, for whatever reason. The
//! installer removes the lock file while it still holds the lock, so that no file is left on the
//! host.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use runtime_config::{Error as HostError, HostEntry};

use crate::host::Host;
use crate::layout::LOCK_DIR_NAME;

/// The mode of the lock file. Only root can open the file, because a process that can open it can
/// also lock it.
const LOCK_FILE_MODE: u32 = 0o600;
/// The maximum number of attempts to lock the file. An attempt fails if another installer removes
/// the file after this process opens it and before this process locks it.
const MAX_LOCK_ATTEMPTS: usize = 16;

/// The exclusive right to change a host. Dropping this value releases the installer lock.
#[derive(Debug)]
pub struct InstallerLock {
    locked_files: Vec<LockedFile>,
}

/// A lock file and its directory. The file stays locked until this value closes the file.
#[derive(Debug)]
struct LockedFile {
    dir: HostEntry,
    entry: HostEntry,
    _file: File,
}

impl Drop for InstallerLock {
    fn drop(&mut self) {
        // An error is ignored. If `release` was not called, this value is dropped because of
        // another error, which is reported.
        let _ = self.remove_files();
    }
}

impl InstallerLock {
    /// Takes the installer lock of a host. The lock file is in the program directory, or in its
    /// nearest existing ancestor.
    pub fn take(host: &Host) -> Result<Self> {
        let programs_dir = host.programs_dir();
        let nearest_dir = programs_dir
            .ancestors()
            .find(|dir| host.exists(dir))
            .unwrap_or(programs_dir);
        let mut locked_files = vec![acquire_lock_file(host, nearest_dir)?];
        // If an earlier run was killed before it created the directories, its lock file is still in
        // an ancestor directory. This run locks that file as well, so that it is removed when the
        // lock is released. If another run has locked that file, the other run removes it.
        for dir in nearest_dir.ancestors().skip(1) {
            if host.exists(&dir.join(LOCK_DIR_NAME)) {
                locked_files.extend(acquire_lock_file(host, dir).ok());
            }
        }
        Ok(Self { locked_files })
    }

    /// Takes a second lock in the program directory as soon as that directory exists, because an
    /// installer that starts later looks for the lock there.
    pub fn lock_programs_dir(&mut self, host: &Host) -> Result<()> {
        self.locked_files
            .push(acquire_lock_file(host, host.programs_dir())?);
        Ok(())
    }

    /// Releases the lock and removes its lock files.
    ///
    /// # Errors
    /// Returns an error if a lock file cannot be removed. The next run of an installer removes it.
    pub fn release(mut self) -> Result<()> {
        Ok(self.remove_files()?)
    }

    fn remove_files(&mut self) -> Result<(), HostError> {
        let results = self.locked_files.drain(..).map(|file| file.unlock());
        results.fold(Ok(()), Result::and)
    }
}

impl LockedFile {
    /// Removes the lock file and its directory. Then closes the file, which unlocks it.
    fn unlock(self) -> Result<(), HostError> {
        let result = self.entry.remove_file();
        match result.and_then(|()| self.dir.remove_dir()) {
            // The lock directory is not empty, because another installer has made a new lock file
            // in it.
            Err(error) if error.kind() == Some(ErrorKind::DirectoryNotEmpty) => Ok(()),
            // If the lock directory still exists, the error is returned. Otherwise the directory
            // was removed together with the program directory, and so was the lock file.
            Err(error) if self.dir.stat()?.is_some() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Locks the file in the lock directory below `parent`, and makes the file if it does not exist.
fn acquire_lock_file(host: &Host, parent: &Path) -> Result<LockedFile> {
    let dir = host.resolve_nofollow(&parent.join(LOCK_DIR_NAME))?;
    for _ in 0..MAX_LOCK_ATTEMPTS {
        match try_acquire_lock_file(&dir) {
            // Another installer removed the lock file before this process could lock it, so this
            // process tries again.
            Ok(None) => {}
            Err(error) if is_not_found(&error) => {}
            Ok(Some(file)) => return Ok(file),
            Err(error) => return Err(error),
        }
    }
    bail!(describe_busy_lock(&dir))
}

fn is_not_found(error: &anyhow::Error) -> bool {
    has_kind(error, ErrorKind::NotFound)
}

fn has_kind(error: &anyhow::Error, kind: ErrorKind) -> bool {
    let host_error = error.downcast_ref::<HostError>();
    host_error.is_some_and(|error| error.kind() == Some(kind))
}

fn describe_busy_lock(dir: &HostEntry) -> String {
    let path = dir.display_path();
    format!(
        "another boathook-init is running on {}; try again when it has ended",
        path.display()
    )
}

/// Tries once to lock the file in the lock directory `dir`. Returns `None` if the file was removed
/// before it was locked, because another installer could then lock a new file with the same name.
fn try_acquire_lock_file(dir: &HostEntry) -> Result<Option<LockedFile>> {
    ignore_already_exists(dir.make_dir_with_mode(0o700))?;
    let entry = dir.child("lock")?;
    ignore_already_exists(entry.create_file(LOCK_FILE_MODE, |_| Ok(())))?;
    let file = entry.open_file()?;
    let path = entry.display_path();
    let to_error = |action| HostError::io(action, &path);
    let metadata = file.metadata().map_err(to_error("read"))?;
    // If the file had another owner or mode, an unprivileged process could hold its lock forever.
    ensure!(
        metadata.mode() & 0o077 == 0 && metadata.uid() == nix::unistd::geteuid().as_raw(),
        "{} can be opened by others than this user, who could hold the lock; remove it",
        path.display()
    );
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(describe_busy_lock(dir)),
        Err(TryLockError::Error(cause)) => return Err(to_error("lock")(cause).into()),
    }
    let is_locked_file = entry
        .stat()?
        .is_some_and(|stat| (stat.st_dev, stat.st_ino) == (metadata.dev(), metadata.ino()));
    Ok(is_locked_file.then(|| LockedFile {
        dir: dir.clone(),
        entry,
        _file: file,
    }))
}

/// Turns the error that a file already exists into success. Returns every other result unchanged.
fn ignore_already_exists(result: Result<(), HostError>) -> Result<(), HostError> {
    match result {
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => Ok(()),
        result => result,
    }
}
