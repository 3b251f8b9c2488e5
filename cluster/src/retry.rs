//! Delays between attempts to reach the API server.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use kube::runtime::utils::Backoff;

#[derive(Debug, Clone, Copy)]
pub struct Retry {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(800),
            longest: Duration::from_secs(30),
        }
    }
}

impl Retry {
    /// Delays that double, with a random part, so that replicas do not retry at the
    /// same time.
    pub fn delays(self) -> Delays {
        Delays {
            retry: self,
            next: self.first,
        }
    }
}

/// Delays that double.
#[derive(Debug)]
pub struct Delays {
    retry: Retry,
    next: Duration,
}

impl Iterator for Delays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.next;
        self.next = (delay * 2).min(self.retry.longest);
        let random = u32::try_from(RandomState::new().hash_one(0) % 256).unwrap_or(0);
        Some(delay + delay * random / 512)
    }
}

impl Backoff for Delays {
    fn reset(&mut self) {
        self.next = self.retry.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_again() {
        let retry = Retry {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(5),
        };
        let mut delays = retry.delays();
        for least in [1, 2, 4, 5, 5] {
            let delay = delays.next().unwrap().as_secs_f64();
            let least = f64::from(least);
            assert!((least..=1.5 * least).contains(&delay), "{delay}");
        }
        delays.reset();
        assert!(delays.next().unwrap() < Duration::from_secs(2));
    }
}
