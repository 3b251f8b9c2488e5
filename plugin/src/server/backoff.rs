//! Computes the delay before the next attempt after a failure.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A delay that doubles with each failure, up to a maximum. A random part (jitter) keeps the
/// resources of a node, and the nodes of a cluster, from retrying at the same moment.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first_delay: Duration,
    max_delay: Duration,
    failure_count: u32,
    hash_state: RandomState,
}

impl Backoff {
    pub(crate) fn new(first_delay: Duration, max_delay: Duration) -> Self {
        Backoff {
            first_delay,
            max_delay,
            failure_count: 0,
            hash_state: RandomState::new(),
        }
    }

    /// Counts a failure, and returns the delay before the next attempt: between 75 % and 125 % of
    /// the doubled delay, which is at most `max_delay`.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let doubled_delay = self
            .first_delay
            .saturating_mul(1 << self.failure_count.min(16));
        self.failure_count = self.failure_count.saturating_add(1);
        let jitter = self.hash_state.hash_one(self.failure_count) % 256;
        let delay = doubled_delay.min(self.max_delay);
        delay * 3 / 4 + delay * u32::try_from(jitter).unwrap_or(0) / 512
    }

    pub(crate) fn reset(&mut self) {
        self.failure_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_with_a_quarter_of_jitter() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        for wanted in [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000] {
            let wait = backoff.next_delay().as_millis();
            assert!(
                wait >= wanted * 3 / 4 && wait <= wanted * 5 / 4,
                "{wait} for {wanted}"
            );
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(13));
    }
}
