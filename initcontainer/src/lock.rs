//! A lock that lets only one installer at a time change a host.
//!
//! The lock is flock(2) on a file that only root can open, because every process that can open
//! a file can lock it. The kernel releases the lock when the process ends for any reason. The
//! file is removed while the lock is held, so that no file remains.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use runtime_config::{Error as HostError, HostRoot, Place};

use crate::layout::{LOCK, ROOT};

/// The mode of the lock file: only root can read and write it.
const MODE: u32 = 0o600;
/// The maximum number of attempts to lock the file. An attempt fails if another installer
/// removes the file between opening and locking.
const ATTEMPTS: usize = 16;

/// The exclusive right to change a host. Dropping the value releases the lock.
#[derive(Debug)]
pub struct Lock {
    held: Vec<LockedFile>,
}

/// An open lock file. The file is locked until it is closed.
#[derive(Debug)]
struct LockedFile {
    dir: Place,
    name: Place,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The value was not released only if the command failed, and that error is reported.
        let _ = self.remove();
    }
}

impl Lock {
    /// Takes the lock on a host. The lock file is in the directory of the installation, or in
    /// the nearest existing directory above it.
    pub fn take(host: &HostRoot) -> Result<Self> {
        let root = Path::new(ROOT);
        let nearest = root
            .ancestors()
            .find(|dir| host.exists(dir))
            .unwrap_or(root);
        let mut held = vec![lock_file(host, nearest)?];
        // A run that was killed before it made the directories has left its lock file in a
        // directory above. The file is locked here, so that it is removed at the end. If another
        // run has it locked, that run removes it.
        for above in nearest.ancestors().skip(1) {
            if host.exists(&above.join(LOCK)) {
                held.extend(lock_file(host, above).ok());
            }
        }
        Ok(Self { held })
    }

    /// Takes a second lock in the directory of the installation, once that directory exists. An
    /// installer that starts later looks for the lock there.
    pub fn extend(&mut self, host: &HostRoot) -> Result<()> {
        self.held.push(lock_file(host, Path::new(ROOT))?);
        Ok(())
    }

    /// Releases the lock, and removes its files.
    ///
    /// # Errors
    /// A file cannot be removed. The next run removes it.
    pub fn release(mut self) -> Result<()> {
        Ok(self.remove()?)
    }

    fn remove(&mut self) -> Result<(), HostError> {
        let removed = self.held.drain(..).map(|held| held.remove());
        removed.fold(Ok(()), Result::and)
    }
}

impl LockedFile {
    fn remove(self) -> Result<(), HostError> {
        let removed = self.name.remove_file();
        match removed.and_then(|()| self.dir.remove_dir()) {
            // Another installer already holds the lock.
            Err(error) if error.kind() == Some(ErrorKind::DirectoryNotEmpty) => Ok(()),
            // The lock may have been removed together with the directory of the installation.
            Err(error) if self.dir.stat()?.is_some() => Err(error),
            _ => Ok(()),
        }
    }
}

fn lock_file(host: &HostRoot, parent: &Path) -> Result<LockedFile> {
    let dir = host.entry(&parent.join(LOCK))?;
    let explain = |error: anyhow::Error| match is_read_only(&error) {
        false => error,
        true => error.context(format!(
            "{} cannot be written to on this host; in a cluster install by the chart with \
             installDir and configDir below a directory that can",
            parent.display()
        )),
    };
    for _ in 0..ATTEMPTS {
        match try_lock_file(&dir) {
            // Another installer has removed the file in the meantime.
            Ok(None) => {}
            Err(error) if is_absence(&error) => {}
            Ok(Some(held)) => return Ok(held),
            Err(error) => return Err(explain(error)),
        }
    }
    bail!(new_busy_error(&dir))
}

fn is_absence(error: &anyhow::Error) -> bool {
    has_kind(error, ErrorKind::NotFound)
}

fn is_read_only(error: &anyhow::Error) -> bool {
    has_kind(error, ErrorKind::ReadOnlyFilesystem)
}

fn has_kind(error: &anyhow::Error, kind: ErrorKind) -> bool {
    let of_host = error.downcast_ref::<HostError>();
    of_host.is_some_and(|error| error.kind() == Some(kind))
}

fn new_busy_error(dir: &Place) -> String {
    let path = dir.shown();
    format!(
        "another boathook-init is running on {}; try again when it has ended",
        path.display()
    )
}

/// Tries to lock the file once. Returns `None` if the locked file was removed in the meantime,
/// so that another installer could lock a new file of the same name.
fn try_lock_file(dir: &Place) -> Result<Option<LockedFile>> {
    ignore_existing(dir.make_dir_with(0o700))?;
    let name = dir.child("lock")?;
    ignore_existing(name.create(MODE, |_| Ok(())))?;
    let file = name.open_file()?;
    let path = name.shown();
    let failed = |action| HostError::io(action, &path);
    let metadata = file.metadata().map_err(failed("read"))?;
    // With another owner or mode, a process without privileges could hold the lock for ever.
    ensure!(
        metadata.mode() & 0o077 == 0 && metadata.uid() == nix::unistd::geteuid().as_raw(),
        "{} can be opened by others than this user, who could hold the lock; remove it",
        path.display()
    );
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(new_busy_error(dir)),
        Err(TryLockError::Error(cause)) => return Err(failed("lock")(cause).into()),
    }
    let named = name.stat()?;
    let is_named =
        named.is_some_and(|named| (named.st_dev, named.st_ino) == (metadata.dev(), metadata.ino()));
    Ok(is_named.then(|| LockedFile {
        dir: dir.clone(),
        name,
        _file: file,
    }))
}

/// Turns the error that a file already exists into a success.
fn ignore_existing(result: Result<(), HostError>) -> Result<(), HostError> {
    match result {
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => Ok(()),
        result => result,
    }
}
