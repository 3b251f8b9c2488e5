//! Limits how often events start a run of `boathook follow`. A limit is needed because devices and
//! containers can cause any number of events.

use std::time::{Duration, Instant};

/// The average time between two permitted runs. After a burst, runs are at least this far apart.
const RUN_INTERVAL: Duration = Duration::from_millis(500);

/// The time for which unused runs are saved up. So at most `BURST_WINDOW / RUN_INTERVAL` runs,
/// which is ten, may follow each other without a pause.
const BURST_WINDOW: Duration = Duration::from_secs(5);

/// A rate limit that permits ten runs at once, and two per second after that.
pub(super) struct RateLimit {
    /// The time at which the next run would start if all counted runs were [`RUN_INTERVAL`] apart.
    /// It is at most [`BURST_WINDOW`] in the future.
    scheduled_time: Instant,
}

impl RateLimit {
    pub(super) fn new() -> Self {
        RateLimit {
            scheduled_time: Instant::now(),
        }
    }

    pub(super) fn count_run(&mut self) {
        let now = Instant::now();
        let next_time = self.scheduled_time.max(now) + RUN_INTERVAL;
        self.scheduled_time = next_time.min(now + BURST_WINDOW);
    }

    /// Returns the time to wait until the next run is permitted, or `None` if it is permitted now.
    pub(super) fn compute_wait_time(&self) -> Option<Duration> {
        let time_ahead = self
            .scheduled_time
            .saturating_duration_since(Instant::now());
        let wait_time = (time_ahead + RUN_INTERVAL).saturating_sub(BURST_WINDOW);
        (!wait_time.is_zero()).then_some(wait_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_runs_are_permitted_at_once_and_then_one_at_a_time() {
        let mut limit = RateLimit::new();
        for _ in 0..10 {
            assert_eq!(limit.compute_wait_time(), None);
            limit.count_run();
        }
        let wait = limit.compute_wait_time().unwrap();
        assert!(wait <= RUN_INTERVAL && wait > RUN_INTERVAL / 2, "{wait:?}");
        std::thread::sleep(wait);
        assert_eq!(limit.compute_wait_time(), None);
    }
}
