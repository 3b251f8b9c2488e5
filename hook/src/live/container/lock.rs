//! The two locks of attachment records. The lock of a container is held while the container is
//! changed, which the container may delay. The write lock of the record directory is held only while
//! record files are compared and written, so that `detach` can record what it revoked even if a
//! container's lock is not released.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use rooted_path::open_lock_file;

/// The time that a command of a user waits for the lock before it fails.
pub(in crate::live) const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The time that `follow` waits for the lock before it gives up and retries later.
pub(in crate::live) const FOLLOW_LIMIT: Duration = Duration::from_secs(1);

/// The pause between two attempts to take the lock.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// A lock that this process holds. It is released when the value is dropped.
pub(in crate::live) struct ContainerLock {
    path: PathBuf,
    /// The lock file, which is open and locked with flock(2).
    file: File,
}

impl Drop for ContainerLock {
    /// Unlocks the file. To close it is not enough: a child process that was left behind has
    /// the same open file, and would keep the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl ContainerLock {
    /// Waits for the lock for at most `limit`. Another process may hold the lock for ever, if the
    /// container keeps that process waiting.
    pub(in crate::live) fn take(directory: &Path, id: &str, limit: Duration) -> io::Result<Self> {
        let reason = "another process is changing this container, and does not end";
        retry_within(limit, reason, || Self::try_take(directory, id))
    }

    /// Takes the lock. Returns `None` if another process holds it.
    pub(in crate::live) fn try_take(directory: &Path, id: &str) -> io::Result<Option<Self>> {
        let path = directory.join(format!(".{id}.lock"));
        let file = open_lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let locked = file.metadata()?;
        // The previous holder may have removed the file. Then another process makes a new file
        // with the same name, and this lock excludes nobody.
        let named = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            named => named?,
        };
        let is_named = (locked.dev(), locked.ino()) == (named.dev(), named.ino());
        Ok(is_named.then_some(ContainerLock { path, file }))
    }

    /// Removes the lock file, as the last use of the lock. Processes that wait for the lock
    /// notice it and make a new file.
    pub(in crate::live) fn remove_file(&self) {
        // A single call that fails must not leave the file.
        let _ = fs::remove_file(&self.path).or_else(|_| fs::remove_file(&self.path));
    }
}

/// The lock of a directory of records (flock(2) of the directory itself). It is held while a record
/// file is compared, written or removed, and never while a container is changed.
pub(super) struct RecordWriteLock {
    _directory: File,
}

impl RecordWriteLock {
    /// Waits for the lock for at most [`COMMAND_LIMIT`]. Its holders need milliseconds.
    pub(super) fn take(directory: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(open(directory, flags, Mode::empty())?);
        let reason = "another process is writing records, and does not end";
        retry_within(COMMAND_LIMIT, reason, || match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        })?;
        Ok(RecordWriteLock { _directory: file })
    }
}

/// Calls `try_take` until it returns a lock. Fails with `reason` after `limit`.
fn retry_within<T>(
    limit: Duration,
    reason: &str,
    mut try_take: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(lock) = try_take()? {
            return Ok(lock);
        }
        if Instant::now() > end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        sleep(RETRY_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// The lock excludes other processes also while its holders remove the file.
    #[test]
    fn only_one_holder_has_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (holders, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..500 {
                        let lock = match round % 5 {
                            0 => ContainerLock::try_take(directory, "a").unwrap(),
                            _ => Some(ContainerLock::take(directory, "a", COMMAND_LIMIT).unwrap()),
                        };
                        let Some(lock) = lock else { continue };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "{round}");
                        thread::yield_now();
                        rounds.fetch_add(1, Ordering::SeqCst);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        if round % 2 == 0 {
                            lock.remove_file();
                        }
                    }
                });
            }
        });
        assert!(rounds.load(Ordering::SeqCst) >= 4 * 400);
        let lock = ContainerLock::take(directory, "a", COMMAND_LIMIT).unwrap();
        assert!(ContainerLock::try_take(directory, "a").unwrap().is_none());
        assert!(ContainerLock::try_take(directory, "b").unwrap().is_some());
        assert!(ContainerLock::take(directory, "a", RETRY_PAUSE).is_err());
        lock.remove_file();
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1, "b's");
    }
}
