//! A limit for work that others cause, and may cause without end.

use std::time::{Duration, Instant};

/// The time in which one run is earned.
const INTERVAL: Duration = Duration::from_millis(500);

/// The time for which runs are saved up.
const BURST: Duration = Duration::from_secs(5);

/// Permits ten runs at once, and two each second after that.
pub(super) struct RateLimit {
    /// The time at which all runs that were done are earned.
    earned_at: Instant,
}

impl RateLimit {
    pub(super) fn new() -> Self {
        RateLimit {
            earned_at: Instant::now(),
        }
    }

    /// Counts one run.
    pub(super) fn count_run(&mut self) {
        self.earned_at = self.earned_at.max(Instant::now()) + INTERVAL;
    }

    /// Returns how long to wait until the next run. `None` means that it may be done now.
    pub(super) fn wait_time(&self) -> Option<Duration> {
        let ahead = self.earned_at.saturating_duration_since(Instant::now());
        let wait = (ahead + INTERVAL).saturating_sub(BURST);
        (!wait.is_zero()).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_runs_are_permitted_at_once_and_then_one_at_a_time() {
        let mut limit = RateLimit::new();
        for _ in 0..10 {
            assert_eq!(limit.wait_time(), None);
            limit.count_run();
        }
        let wait = limit.wait_time().unwrap();
        assert!(wait <= INTERVAL && wait > INTERVAL / 2, "{wait:?}");
        std::thread::sleep(wait);
        assert_eq!(limit.wait_time(), None);
    }
}
