//! The extender's metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The verb and the result of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// filter or prioritize.
    pub verb: &'static str,
    /// ok or refused.
    pub result: &'static str,
}

/// The verb of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VerbLabels {
    /// filter or prioritize.
    pub verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// nodes or pods.
    pub kind: &'static str,
}

/// The metrics. Clones share their counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub requests: Family<RequestLabels, Counter>,
    pub duration: Family<VerbLabels, Histogram>,
    /// Nodes that filter refused.
    pub refused_nodes: Counter,
    /// Nodes and pods that are known.
    pub known: Family<KindLabels, Gauge>,
    pub watch_errors: Family<KindLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets = || Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0]);
        Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(buckets),
            refused_nodes: Counter::default(),
            known: Family::default(),
            watch_errors: Family::default(),
        }
    }
}

impl Metrics {
    /// The registry that shows them.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("boathook_scheduler");
        registry.register(
            "requests",
            "Requests of kube-scheduler",
            self.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time from a request's body to its answer",
            self.duration.clone(),
        );
        registry.register(
            "refused_nodes",
            "Nodes that filter refused",
            self.refused_nodes.clone(),
        );
        registry.register(
            "known_objects",
            "Nodes, and pods that hold one of the resources",
            self.known.clone(),
        );
        registry.register(
            "watch_errors",
            "Failures of watches",
            self.watch_errors.clone(),
        );
        registry
    }
}
