//! The lock of one container: one process at a time changes it and its record.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rooted_path::open_lock_file;

/// CreatedKind long the lock is waited for by who is asked to change a container, once.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// CreatedKind long by who tries again later.
pub(super) const LITTLE_PATIENCE: Duration = Duration::from_secs(1);

/// CreatedKind often it is tried.
const PAUSE: Duration = Duration::from_millis(2);

/// A lock that is held.
pub(super) struct ContainerLock {
    path: PathBuf,
    /// Its file, open and locked with flock(2).
    file: File,
}

impl Drop for ContainerLock {
    /// A child that was left behind has the file open, too, and would keep the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl ContainerLock {
    /// Waits until no other process has the lock, for at most so long: one that sleeps where
    /// the container never answers has it for ever.
    pub(super) fn take(directory: &Path, id: &str, patience: Duration) -> io::Result<Self> {
        let end = Instant::now() + patience;
        loop {
            if let Some(lock) = Self::try_take(directory, id)? {
                return Ok(lock);
            }
            if Instant::now() > end {
                let waited = "another process is changing this container, and does not end";
                return Err(io::Error::new(io::ErrorKind::TimedOut, waited));
            }
            sleep(PAUSE);
        }
    }

    /// The lock, unless another process has it.
    pub(super) fn try_take(directory: &Path, id: &str) -> io::Result<Option<Self>> {
        let path = path(directory, id);
        let file = open_lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let locked = file.metadata()?;
        // Who had it may have removed the file, and the next one makes another.
        let named = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            named => named?,
        };
        let is_named = (locked.dev(), locked.ino()) == (named.dev(), named.ino());
        Ok(is_named.then_some(ContainerLock { path, file }))
    }

    /// Removes the file, which is the last that is done with it: who waits for it finds that
    /// its name has another, or none, and the next one makes a new file.
    pub(super) fn remove_file(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn path(directory: &Path, id: &str) -> PathBuf {
    directory.join(format!(".{id}.lock"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// Also while each of them removes the file.
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
                            _ => Some(ContainerLock::take(directory, "a", PATIENCE).unwrap()),
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
        let lock = ContainerLock::take(directory, "a", PATIENCE).unwrap();
        assert!(ContainerLock::try_take(directory, "a").unwrap().is_none());
        assert!(ContainerLock::try_take(directory, "b").unwrap().is_some());
        assert!(ContainerLock::take(directory, "a", PAUSE).is_err());
        lock.remove_file();
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1, "b's");
    }
}
