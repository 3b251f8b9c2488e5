//! One installer at a time.
//!
//! The lock is flock(2) on a file that root alone can open: whoever can open a file can
//! hold its lock. It ends with the process that holds it, however that ends; the file is
//! removed while the lock is held, so nothing stays behind.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use runtime_config::{Error as HostError, HostRoot, Place};

use crate::layout::{LOCK, ROOT};

/// Root alone can read and write.
const MODE: u32 = 0o600;
/// How often another installer may remove the file while it is being taken.
const ATTEMPTS: usize = 16;

/// The right to change a host, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    held: Vec<LockedFile>,
}

/// A file that is locked while it is open.
#[derive(Debug)]
struct LockedFile {
    dir: Place,
    name: Place,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only where it was not released: another error is reported.
        let _ = self.remove();
    }
}

impl Lock {
    /// Takes the lock on a host: in the installation's directory, or in the
    /// nearest directory above it that exists.
    pub fn take(host: &HostRoot) -> Result<Self> {
        let root = Path::new(ROOT);
        let nearest = root
            .ancestors()
            .find(|dir| host.exists(dir))
            .unwrap_or(root);
        let mut held = vec![lock(host, nearest)?];
        // What a run that was killed before it made the directories has left. Another that
        // holds one of these began before the directories were made, and removes it.
        for above in nearest.ancestors().skip(1) {
            if host.exists(&above.join(LOCK)) {
                held.extend(lock(host, above).ok());
            }
        }
        Ok(Self { held })
    }

    /// Takes the lock in the installation's directory too, once it was made,
    /// for that is where another installer will look from now on.
    pub fn extend(&mut self, host: &HostRoot) -> Result<()> {
        self.held.push(lock(host, Path::new(ROOT))?);
        Ok(())
    }

    /// Ends it, and removes its files.
    ///
    /// # Errors
    /// A file stays; the next run removes it.
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
            // The next run has it already.
            Err(error) if error.kind() == Some(ErrorKind::DirectoryNotEmpty) => Ok(()),
            // It may be gone with the installation's directory.
            Err(error) if self.dir.stat()?.is_some() => Err(error),
            _ => Ok(()),
        }
    }
}

fn lock(host: &HostRoot, parent: &Path) -> Result<LockedFile> {
    let dir = host.entry(&parent.join(LOCK))?;
    for _ in 0..ATTEMPTS {
        match attempt(&dir) {
            // Another installer has removed it meanwhile.
            Ok(None) => {}
            Err(error) if is_absence(&error) => {}
            Ok(Some(held)) => return Ok(held),
            Err(error) => return Err(error),
        }
    }
    bail!(busy(&dir))
}

fn is_absence(error: &anyhow::Error) -> bool {
    let of_host = error.downcast_ref::<HostError>();
    of_host.is_some_and(|error| error.kind() == Some(ErrorKind::NotFound))
}

fn busy(dir: &Place) -> String {
    let path = dir.shown();
    format!(
        "another boathook-init is running on {}; try again when it has ended",
        path.display()
    )
}

/// None: what is locked has lost its name.
fn attempt(dir: &Place) -> Result<Option<LockedFile>> {
    ignore_existing(dir.make_dir_with(0o700))?;
    let name = dir.child("lock")?;
    ignore_existing(name.create(MODE, |_| Ok(())))?;
    let file = name.open_file()?;
    let path = name.shown();
    let failed = |action| HostError::io(action, &path);
    let metadata = file.metadata().map_err(failed("read"))?;
    // The lock could be held by whoever likes.
    ensure!(
        metadata.mode() & 0o077 == 0 && metadata.uid() == nix::unistd::geteuid().as_raw(),
        "{} can be opened by others than this user, who could hold the lock; remove it",
        path.display()
    );
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(busy(dir)),
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

/// Turns the error that a file exists already into a success.
fn ignore_existing(result: Result<(), HostError>) -> Result<(), HostError> {
    match result {
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => Ok(()),
        result => result,
    }
}
