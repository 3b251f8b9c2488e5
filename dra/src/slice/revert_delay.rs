//! Delays the reversal of changes that other programs make to the slices.
//!
//! The kubelet deletes all slices when it starts, and the driver must write them again at once.
//! However, another version of the driver on the node may plan different slices. Without a delay,
//! the two drivers would overwrite each other's slices endlessly.

use std::time::Duration;

use tokio::time::Instant;

/// The minimum delay before another program's change is reverted, or before a failed write is tried
/// again.
pub(super) const MIN_REVERT_DELAY: Duration = Duration::from_secs(1);
/// The maximum delay before another program's change is reverted, or before a failed write is tried
/// again.
pub(super) const MAX_REVERT_DELAY: Duration = Duration::from_secs(60);

/// The delay after a write during which changes by other programs are not reverted.
#[derive(Debug)]
pub(super) struct RevertDelay {
    last_write_time: Option<Instant>,
    duration: Duration,
}

impl RevertDelay {
    pub(super) fn new() -> Self {
        RevertDelay {
            last_write_time: None,
            duration: MIN_REVERT_DELAY,
        }
    }

    /// Returns the earliest time at which another program's change may be reverted, if the change
    /// is noticed at `now`.
    pub(super) fn earliest_revert_time(&self, now: Instant) -> Instant {
        self.last_write_time.map_or(now, |last_write_time| {
            now.max(last_write_time + self.duration)
        })
    }

    /// Records that slices were written. `is_revert` tells whether this reverted a change by
    /// another program. Returns the new delay if it is longer than the previous one.
    pub(super) fn record_write(&mut self, now: Instant, is_revert: bool) -> Option<Duration> {
        let last_write_time = self.last_write_time.replace(now);
        let is_soon_after_last_write = last_write_time
            .is_some_and(|last_write_time| now - last_write_time <= self.duration * 2);
        let duration = match (is_soon_after_last_write, is_revert) {
            (true, true) => (self.duration * 2).min(MAX_REVERT_DELAY),
            (true, false) => self.duration,
            (false, _) => MIN_REVERT_DELAY,
        };
        let is_longer = duration > std::mem::replace(&mut self.duration, duration);
        is_longer.then_some(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_while_somebody_else_writes_and_begins_anew() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut delay = RevertDelay::new();
        assert_eq!(delay.earliest_revert_time(at(0)), at(0));
        delay.record_write(at(0), false);
        // Each answer as early as it may be.
        let mut now = at(0);
        let mut grown = Vec::new();
        for _ in 0..8 {
            now = delay.earliest_revert_time(now);
            grown.extend(delay.record_write(now, true).map(|longer| longer.as_secs()));
        }
        assert_eq!(grown, [2, 4, 8, 16, 32, 60]);
        // A write after a change of the node does not make the delay shorter.
        delay.record_write(now + MIN_REVERT_DELAY, false);
        assert_eq!(
            delay.earliest_revert_time(now + MIN_REVERT_DELAY),
            now + MIN_REVERT_DELAY + MAX_REVERT_DELAY
        );
        let later = now + Duration::from_secs(600);
        assert_eq!(delay.earliest_revert_time(later), later);
        delay.record_write(later, true);
        assert_eq!(delay.earliest_revert_time(later), later + MIN_REVERT_DELAY);
    }
}
