//! The installer lock, which lets only one installer at a time change a host.
//!
//! The lock is flock(2) on a file that only root can open, because every process that can open a
//! file can lock it. The kernel releases the lock when the process ends for any reason. The file
//! is removed while the lock is held, so that no file remains.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use runtime_config::{Error as HostError, Place};

use crate::host::Host;
use crate::layout::LOCK;

/// The mode of the lock file. Only root can read and write it.
const MODE: u32 = 0o600;
/// The maximum number of attempts to lock the file. An attempt fails if another installer removes
/// the file between opening and locking.
const ATTEMPTS: usize = 16;

/// The exclusive right to change a host. Dropping this value releases the lock.
#[derive(Debug)]
pub struct Lock {
    held: Vec<LockedFile>,
}

/// An open lock file, which is locked until it is closed.
#[derive(Debug)]
struct LockedFile {
    dir: Place,
    name: Place,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // An error is ignored: this value is dropped unreleased only after another error, which is
        // reported.
        let _ = self.remove();
    }
}

impl Lock {
    /// Takes the lock of a host. The lock file is in the program directory, or in its nearest
    /// existing ancestor.
    pub fn take(host: &Host) -> Result<Self> {
        let root = host.programs();
        let nearest = root
            .ancestors()
            .find(|dir| host.exists(dir))
            .unwrap_or(root);
        let mut held = vec![lock_file(host, nearest)?];
        // A run that was killed before it made the directories left its lock file in an ancestor.
        // That file is locked too, so that it is removed at the end. If another run has locked it,
        // that run removes it.
        for above in nearest.ancestors().skip(1) {
            if host.exists(&above.join(LOCK)) {
                held.extend(lock_file(host, above).ok());
            }
        }
        Ok(Self { held })
    }

    /// Takes a second lock in the program directory once it exists, because an installer that
    /// starts later looks for the lock there.
    pub fn extend(&mut self, host: &Host) -> Result<()> {
        self.held.push(lock_file(host, host.programs())?);
        Ok(())
    }

    /// Releases the lock and removes its files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be removed. The next run removes it.
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
            // Another installer holds the lock already.
            Err(error) if error.kind() == Some(ErrorKind::DirectoryNotEmpty) => Ok(()),
            // The file may have been removed together with the program directory.
            Err(error) if self.dir.stat()?.is_some() => Err(error),
            _ => Ok(()),
        }
    }
}

fn lock_file(host: &Host, parent: &Path) -> Result<LockedFile> {
    let dir = host.entry(&parent.join(LOCK))?;
    for _ in 0..ATTEMPTS {
        match try_lock_file(&dir) {
            // Another installer removed the file in the meantime.
            Ok(None) => {}
            Err(error) if is_absence(&error) => {}
            Ok(Some(held)) => return Ok(held),
            Err(error) => return Err(error),
        }
    }
    bail!(new_busy_error(&dir))
}

fn is_absence(error: &anyhow::Error) -> bool {
    has_kind(error, ErrorKind::NotFound)
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

/// Tries once to lock the file. Returns `None` if the locked file was removed in the meantime,
/// because another installer could then lock a new file of the same name.
fn try_lock_file(dir: &Place) -> Result<Option<LockedFile>> {
    ignore_existing(dir.make_dir_with(0o700))?;
    let name = dir.child("lock")?;
    ignore_existing(name.create(MODE, |_| Ok(())))?;
    let file = name.open_file()?;
    let path = name.shown();
    let failed = |action| HostError::io(action, &path);
    let metadata = file.metadata().map_err(failed("read"))?;
    // With another owner or mode, an unprivileged process could hold the lock for ever.
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

/// Treats the error that a file already exists as success.
fn ignore_existing(result: Result<(), HostError>) -> Result<(), HostError> {
    match result {
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => Ok(()),
        result => result,
    }
}
