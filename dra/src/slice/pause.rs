//! The delay before a change of slices by another program is reverted.
//!
//! The kubelet deletes all slices when it starts, and they are to be written again at once.
//! But another version of this driver on the node may want different slices: without a delay,
//! each version would write whenever the other one did.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest and the longest delay, which also apply after failures.
pub(super) const FIRST: Duration = Duration::from_secs(1);
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// The time after a write in which changes by other programs are not reverted.
#[derive(Debug)]
pub(super) struct RevertDelay {
    wrote: Option<Instant>,
    length: Duration,
}

impl RevertDelay {
    pub(super) fn new() -> Self {
        RevertDelay {
            wrote: None,
            length: FIRST,
        }
    }

    /// Returns the time at which a change that is seen now may be reverted.
    pub(super) fn end(&self, now: Instant) -> Instant {
        self.wrote.map_or(now, |wrote| now.max(wrote + self.length))
    }

    /// Notes a write. `is_answer` tells whether it reverted a change by another program.
    /// Returns the next delay if it is longer than the previous one.
    pub(super) fn wrote(&mut self, now: Instant, is_answer: bool) -> Option<Duration> {
        let previous = self.wrote.replace(now);
        let is_soon = previous.is_some_and(|previous| now - previous <= self.length * 2);
        let length = match (is_soon, is_answer) {
            (true, true) => (self.length * 2).min(LONGEST),
            (true, false) => self.length,
            (false, _) => FIRST,
        };
        let is_longer = length > std::mem::replace(&mut self.length, length);
        is_longer.then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_while_somebody_else_writes_and_begins_anew() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pause = RevertDelay::new();
        assert_eq!(pause.end(at(0)), at(0));
        pause.wrote(at(0), false);
        // Each answer as early as it may be.
        let mut now = at(0);
        let mut grown = Vec::new();
        for _ in 0..8 {
            now = pause.end(now);
            grown.extend(pause.wrote(now, true).map(|pause| pause.as_secs()));
        }
        assert_eq!(grown, [2, 4, 8, 16, 32, 60]);
        // What changed on the node does not make it shorter.
        pause.wrote(now + FIRST, false);
        assert_eq!(pause.end(now + FIRST), now + FIRST + LONGEST);
        let later = now + Duration::from_secs(600);
        assert_eq!(pause.end(later), later);
        pause.wrote(later, true);
        assert_eq!(pause.end(later), later + FIRST);
    }
}
