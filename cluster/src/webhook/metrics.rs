//! The webhook's metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::watch::Label;

/// The metrics. Clones share their counters.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// The number of reviews, by result: `mapped`, `unchanged`, `denied` or `invalid`.
    pub reviews: Family<[Label; 1], Counter>,
    pub names: Gauge,
    pub watch_errors: Family<[Label; 1], Counter>,
}

impl Metrics {
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("boathook_webhook");
        registry.register("reviews", "Reviews of pods", self.reviews.clone());
        registry.register(
            "known_names",
            "Names of AcceleratorFunctions and FpgaRegions",
            self.names.clone(),
        );
        registry.register(
            "watch_errors",
            "Failures of watches",
            self.watch_errors.clone(),
        );
        registry
    }
}
