//! Waits for other processes.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time limit for a condition. Nothing that works exceeds it, even on a machine that is busy
/// with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds. Returns false if it does not hold within [`PATIENCE`].
pub fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}
