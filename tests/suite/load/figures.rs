//! The times that starts took.

use std::fmt;
use std::time::Duration;

/// Times, in order.
pub(super) struct Figures(Vec<Duration>);

impl Figures {
    pub(super) fn from_times(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that this part of all did not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let place = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(place).copied().unwrap_or_default()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} started; p50 {} ms, p99 {} ms, longest {} ms",
            self.0.len(),
            self.percentile(50).as_millis(),
            self.percentile(99).as_millis(),
            self.percentile(100).as_millis()
        )
    }
}
