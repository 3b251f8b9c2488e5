//! How long tests wait for what others do.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything takes that works, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds; `false` if it does not within [`PATIENCE`].
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
