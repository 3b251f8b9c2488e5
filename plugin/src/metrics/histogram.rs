//! How often something took how long.

use std::time::Duration;

use super::text::Text;

/// The upper bounds, in seconds as they are written and in microseconds.
const BOUNDS: [(&str, u128); 9] = [
    ("0.0001", 100),
    ("0.00025", 250),
    ("0.0005", 500),
    ("0.001", 1_000),
    ("0.005", 5_000),
    ("0.025", 25_000),
    ("0.1", 100_000),
    ("1", 1_000_000),
    ("10", 10_000_000),
];

#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// Not cumulated; what took longer than the last bound is in `count` only.
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    pub(super) fn observe(&mut self, took: Duration) {
        if let Some(at) = BOUNDS
            .iter()
            .position(|(_, bound)| took.as_micros() <= *bound)
        {
            self.buckets[at] += 1;
        }
        self.count += 1;
        self.sum += took;
    }

    pub(super) fn write(&self, text: &mut Text, labels: &[(&str, &str)]) {
        let mut below = 0;
        for ((bound, _), count) in BOUNDS.iter().zip(self.buckets) {
            below += count;
            text.sample("_bucket", &[labels, &[("le", bound)]].concat(), below);
        }
        text.sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), self.count);
        text.sample("_sum", labels, self.sum.as_secs_f64());
        text.sample("_count", labels, self.count);
    }
}
