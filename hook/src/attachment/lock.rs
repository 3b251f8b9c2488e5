//! The two locks that protect attachment records.
//!
//! A process holds the lock of a container while it changes the container, and the container can
//! delay this change. A process holds the write lock of the record directory only while it compares
//! and writes record files. So `boathook detach` can write a record even if another process does
//! not release the container's lock.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use host_files::rooted_path::open_lock_file;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// The time that the hook, or a command such as `boathook attach`, waits for a container's lock
/// before it fails.
pub const COMMAND_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that `boathook follow` waits for a container's lock. After this time, it continues with
/// other containers and retries the change later.
pub const FOLLOW_LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between two attempts to acquire a lock. flock(2) has no time limit, so the lock is
/// tried repeatedly without blocking.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The lock of one container's attachment record. This process holds the lock until the value is
/// dropped.
pub struct ContainerLock {
    path: PathBuf,
    /// The lock file, which is open and locked with flock(2).
    file: File,
}

impl Drop for ContainerLock {
    /// Unlocks the file. It is not enough to close the file: a child process that could not be
    /// killed in time has the same open file, and would keep the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl ContainerLock {
    /// Acquires the lock of the container `id`. Waits at most `timeout`, because a hostile
    /// container may prevent the process that holds the lock from ending.
    pub fn acquire(directory: &Path, id: &str, timeout: Duration) -> io::Result<Self> {
        let reason = "another process is changing this container, and does not end";
        retry_within(timeout, reason, || Self::try_acquire(directory, id))
    }

    /// Acquires the lock without waiting. Returns `None` if another process holds the lock, or has
    /// just removed the lock file; the caller may then try again.
    pub fn try_acquire(directory: &Path, id: &str) -> io::Result<Option<Self>> {
        let path = directory.join(format!(".{id}.lock"));
        let file = open_lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let locked_file = file.metadata()?;
        // The previous holder of the lock may have removed the file, and another process may have
        // created a new one. A lock on the removed file does not exclude other processes, so it is
        // not used.
        let current_file = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            current_file => current_file?,
        };
        let is_same_file =
            (locked_file.dev(), locked_file.ino()) == (current_file.dev(), current_file.ino());
        Ok(is_same_file.then_some(ContainerLock { path, file }))
    }

    /// Removes the lock file. The caller must then release the lock. A process that waits for the
    /// lock notices that the file was removed, and creates a new file.
    pub fn remove_file(&self) {
        // The removal is tried twice, so that a single failed system call does not leave the lock
        // file behind.
        let _ = fs::remove_file(&self.path).or_else(|_| fs::remove_file(&self.path));
    }
}

/// The lock of a directory of attachment records (flock(2) on the directory itself). It is held
/// while a record file is compared, written or removed. It is never held while a container is
/// changed.
pub(super) struct RecordWriteLock {
    _directory: File,
}

impl RecordWriteLock {
    /// Acquires the lock. Waits at most [`COMMAND_LOCK_TIMEOUT`]. This is enough, because each
    /// process holds this lock only for milliseconds.
    pub(super) fn acquire(directory: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(open(directory, flags, Mode::empty())?);
        let reason = "another process is writing records, and does not end";
        retry_within(COMMAND_LOCK_TIMEOUT, reason, || match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        })?;
        Ok(RecordWriteLock { _directory: file })
    }
}

/// Calls `try_acquire` every 2 milliseconds until it returns a lock. If this takes longer than
/// `timeout`, fails with `TimedOut` and the text `reason`.
fn retry_within<T>(
    timeout: Duration,
    reason: &str,
    mut try_acquire: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(lock) = try_acquire()? {
            return Ok(lock);
        }
        if Instant::now() > deadline {
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
                            0 => ContainerLock::try_acquire(directory, "a").unwrap(),
                            _ => Some(
                                ContainerLock::acquire(directory, "a", COMMAND_LOCK_TIMEOUT)
                                    .unwrap(),
                            ),
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
        let lock = ContainerLock::acquire(directory, "a", COMMAND_LOCK_TIMEOUT).unwrap();
        assert!(
            ContainerLock::try_acquire(directory, "a")
                .unwrap()
                .is_none()
        );
        assert!(
            ContainerLock::try_acquire(directory, "b")
                .unwrap()
                .is_some()
        );
        assert!(ContainerLock::acquire(directory, "a", RETRY_PAUSE).is_err());
        lock.remove_file();
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1, "b's");
    }
}
