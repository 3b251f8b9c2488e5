//! The lock of one container: only one process at a time changes the container and its record.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

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
    /// Waits for the lock for at most `limit`. Another process may hold it for ever: one that
    /// the container keeps waiting.
    pub(in crate::live) fn take(directory: &Path, id: &str, limit: Duration) -> io::Result<Self> {
        let end = Instant::now() + limit;
        loop {
            if let Some(lock) = Self::try_take(directory, id)? {
                return Ok(lock);
            }
            if Instant::now() > end {
                let waited = "another process is changing this container, and does not end";
                return Err(io::Error::new(io::ErrorKind::TimedOut, waited));
            }
            sleep(RETRY_PAUSE);
        }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// Also while the holders remove the file.
    #[test]
    fn one_at_a_time_has_the_lock() {
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
