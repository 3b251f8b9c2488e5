//! The time that tests wait for other processes.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// A time limit that nothing exceeds that works, even on a machine that is busy with other tests.
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
