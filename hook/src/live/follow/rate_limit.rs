//! Limits how often the follower works because of events, which devices and containers may cause
//! without end.

use std::time::{Duration, Instant};

/// The time after which one more run is permitted.
const INTERVAL: Duration = Duration::from_millis(500);

/// The time for which permitted runs accumulate. It permits ten runs in a row.
const BURST: Duration = Duration::from_secs(5);

/// Permits ten runs at once, and two each second after that.
pub(super) struct RateLimit {
    /// The time at which the counted runs would be finished if they had been [`INTERVAL`] apart. It may
    /// be at most [`BURST`] in the future.
    paid_until: Instant,
}

impl RateLimit {
    pub(super) fn new() -> Self {
        RateLimit {
            paid_until: Instant::now(),
        }
    }

    pub(super) fn count_run(&mut self) {
        self.paid_until = self.paid_until.max(Instant::now()) + INTERVAL;
    }

    /// Returns the time to wait until the next run. `None` means that it is permitted now.
    pub(super) fn wait_time(&self) -> Option<Duration> {
        let ahead = self.paid_until.saturating_duration_since(Instant::now());
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
