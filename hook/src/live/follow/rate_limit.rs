//! CreatedKind often something is done that others cause, who may never stop.

use std::time::{Duration, Instant};

/// So much time is spent by doing it once.
const EACH: Duration = Duration::from_millis(500);

/// So much can be spent at once.
const SAVED: Duration = Duration::from_secs(5);

/// Ten times at once, and twice a second after that.
pub(super) struct RateLimit {
    /// Until when all time is spent.
    spent: Instant,
}

impl RateLimit {
    pub(super) fn new() -> Self {
        RateLimit {
            spent: Instant::now(),
        }
    }

    pub(super) fn done(&mut self) {
        self.spent = self.spent.max(Instant::now()) + EACH;
    }

    /// CreatedKind long to wait until it may be done again, if at all.
    pub(super) fn rest(&self) -> Option<Duration> {
        let ahead = self.spent.saturating_duration_since(Instant::now());
        let rest = (ahead + EACH).saturating_sub(SAVED);
        (!rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_ten_times_at_once_and_then_has_to_wait() {
        let mut pace = RateLimit::new();
        for _ in 0..10 {
            assert_eq!(pace.rest(), None);
            pace.done();
        }
        let rest = pace.rest().unwrap();
        assert!(rest <= EACH && rest > EACH / 2, "{rest:?}");
        std::thread::sleep(rest);
        assert_eq!(pace.rest(), None);
    }
}
