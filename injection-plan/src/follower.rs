//! The lock that shows whether `boathook follow` runs on a host. `boathook follow` is the daemon
//! that updates running containers, called the follower here. It holds a flock(2) lock as long as
//! it runs. The kernel releases the lock when the process ends.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use host_files::rooted_path::{open_lock_file, open_own_file};

/// The name of the daemon `boathook follow` in messages, with its systemd unit.
pub const FOLLOWER_NAME: &str = "`boathook follow` (boathook-follow.service)";

/// The commands that start the daemon `boathook follow`, for messages.
pub const START_COMMANDS: &str =
    "systemctl enable --now boathook-follow.service, or run boathook follow";

/// The name of the lock file in the directory `/run/boathook`.
const LOCK_FILE_NAME: &str = "follow.lock";

/// The maximum number of attempts to take the lock. An attempt fails if another process runs
/// [`is_running`], which holds the lock for a short time.
const MAX_ATTEMPTS: usize = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The shared lock that a follower holds while it runs. Several followers can hold it at the same
/// time. Dropping this value releases the lock.
#[derive(Debug)]
pub struct FollowerLock {
    _file: File,
}

impl FollowerLock {
    /// Takes the lock in the directory `run_dir`, such as `/run/boathook`. Returns an error if
    /// another process holds an exclusive lock for more than 100 ms.
    pub fn acquire(run_dir: &Path) -> io::Result<Self> {
        let file = open_lock_file(&run_dir.join(LOCK_FILE_NAME))?;
        for _ in 0..MAX_ATTEMPTS {
            match file.try_lock_shared() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => sleep(RETRY_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("another process keeps {LOCK_FILE_NAME} locked"),
        ))
    }
}

/// Returns whether a follower holds the lock in the directory `run_dir`, such as `/run/boathook`.
///
/// # Errors
/// Returns an error if this user may not open the lock file.
pub fn is_running(run_dir: &Path) -> io::Result<bool> {
    let file = match open_own_file(&run_dir.join(LOCK_FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_seen_for_as_long_as_one_holds_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let is_seen = || is_running(directory).unwrap();
        assert!(!is_seen());
        let first = FollowerLock::acquire(directory).unwrap();
        assert!(is_seen());
        let second = FollowerLock::acquire(directory).unwrap();
        drop(first);
        assert!(is_seen());
        drop(second);
        assert!(!is_seen());
        assert!(!is_running(&directory.join("none")).unwrap());
    }

    #[test]
    fn who_looks_does_not_keep_a_follower_from_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| (0..2000).all(|_| is_running(directory).is_ok()));
            for _ in 0..200 {
                drop(FollowerLock::acquire(directory).unwrap());
            }
            assert!(looks.join().unwrap());
        });
    }
}
