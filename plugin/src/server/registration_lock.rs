//! A lock with which the instances of the plugin on a node register one after the other.
//!
//! An earlier instance may register just when a newer instance starts. The kubelet may receive this
//! registration after that of the newer instance. It would then disconnect the resource when the
//! earlier instance ends (see [`super::instance`]). Therefore an instance takes the lock, checks
//! that no newer instance serves, and keeps the lock until the kubelet has answered. An instance
//! that cannot take the lock in time registers without it. Only then the order is not certain.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::Mode;
use tokio::time::{Instant, sleep};

/// The maximum time that a registration waits for the lock, so that a kubelet or an instance that
/// hangs does not stop the others. It is less than 2 s: within that time an earlier instance must
/// register again when a newer instance ends.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum time that an instance waits for the lock when it registers for the last time before
/// it ends.
pub(super) const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// The interval at which a registration tries to take the lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The lock that an instance of the plugin holds while it registers. It is released when this value
/// is dropped, or when the process ends.
#[derive(Debug)]
pub(super) struct RegistrationLock(#[expect(dead_code, reason = "a guard")] Flock<OwnedFd>);

impl RegistrationLock {
    /// Takes the lock, which is a flock(2) lock on the directory of the kubelet's sockets. Returns
    /// `None` if the lock cannot be taken within `timeout`, or if the directory cannot be opened.
    /// The resource is then registered without the lock.
    pub(super) async fn take(directory: &Path, timeout: Duration) -> Option<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut directory = open(directory, flags, Mode::empty()).ok()?;
        let end = Instant::now() + timeout;
        loop {
            match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Some(RegistrationLock(lock)),
                Err((unlocked, Errno::EWOULDBLOCK)) if Instant::now() < end => {
                    directory = unlocked;
                }
                Err(_) => return None,
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_registration_has_the_lock_and_another_one_waits_for_a_limited_time() {
        let directory = tempfile::tempdir().unwrap();
        let first = RegistrationLock::take(directory.path(), LOCK_TIMEOUT).await;
        assert!(first.is_some());
        let start = Instant::now();
        assert!(
            RegistrationLock::take(directory.path(), LOCK_TIMEOUT)
                .await
                .is_none()
        );
        assert!(start.elapsed() >= LOCK_TIMEOUT);
        drop(first);
        assert!(
            RegistrationLock::take(directory.path(), LOCK_TIMEOUT)
                .await
                .is_some()
        );
        let absent = directory.path().join("absent");
        assert!(
            RegistrationLock::take(&absent, LOCK_TIMEOUT)
                .await
                .is_none()
        );
    }
}
