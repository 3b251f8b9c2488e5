//! Computes the delay before the next attempt after a failure.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A delay that doubles with each failure. A random part keeps the resources of a node, and the
/// nodes of a cluster, from retrying at the same moment.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    random: RandomState,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Backoff {
            first,
            longest,
            failures: 0,
            random: RandomState::new(),
        }
    }

    /// Counts a failure, and returns the delay before the next attempt.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let jitter = self.random.hash_one(self.failures) % 256;
        let wait = doubled.min(self.longest);
        wait * 3 / 4 + wait * u32::try_from(jitter).unwrap_or(0) / 512
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_with_a_quarter_of_jitter() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        for wanted in [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000] {
            let wait = backoff.next_wait().as_millis();
            assert!(
                wait >= wanted * 3 / 4 && wait <= wanted * 5 / 4,
                "{wait} for {wanted}"
            );
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(13));
    }
}
