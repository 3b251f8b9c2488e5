//! The webhook's metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The result of a review.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabels {
    /// mapped, unchanged, denied or invalid.
    pub result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// The plural of the kind.
    pub kind: &'static str,
}

/// The metrics. Clones share their counters.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub reviews: Family<ResultLabels, Counter>,
    pub names: Gauge,
    pub watch_errors: Family<KindLabels, Counter>,
}

impl Metrics {
    /// The registry that shows them.
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
