//! The scheduler extender's metrics, which the page `/metrics` shows.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::watch::Label;

/// The metrics that the extender updates at each request and event. All clones share the same
/// values.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// The number of requests from kube-scheduler, by verb (`filter`, `prioritize`) and result
    /// (`ok`, `refused`).
    pub requests: Family<[Label; 2], Counter>,
    /// The time in seconds from the last byte of a request's body to its answer, by verb.
    pub request_duration: Family<[Label; 1], Histogram>,
    /// The number of nodes that `filter` refused.
    pub refused_nodes: Counter,
    /// The number of objects in the view of the cluster, by kind (`nodes`, `pods`).
    pub object_count: Family<[Label; 1], Gauge>,
    /// The number of watch failures, by kind of object (`nodes`, `pods`).
    pub watch_errors: Family<[Label; 1], Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let new_histogram =
            || Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0]);
        Self {
            requests: Family::default(),
            request_duration: Family::new_with_constructor(new_histogram),
            refused_nodes: Counter::default(),
            object_count: Family::default(),
            watch_errors: Family::default(),
        }
    }
}

impl Metrics {
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        let version = env!("CARGO_PKG_VERSION");
        registry.register(
            "boathook_build",
            "The program and its version",
            Info::new([("program", "boathook-scheduler"), ("version", version)]),
        );
        let program_metrics = registry.sub_registry_with_prefix("boathook_scheduler");
        program_metrics.register(
            "requests",
            "Requests of kube-scheduler",
            self.requests.clone(),
        );
        program_metrics.register(
            "request_duration_seconds",
            "Time from a request's body to its answer",
            self.request_duration.clone(),
        );
        program_metrics.register(
            "refused_nodes",
            "Nodes that filter refused",
            self.refused_nodes.clone(),
        );
        program_metrics.register(
            "known_objects",
            "Nodes, and pods that hold one of the resources",
            self.object_count.clone(),
        );
        program_metrics.register(
            "watch_errors",
            "Failures of watches",
            self.watch_errors.clone(),
        );
        registry
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_metric_of_the_version_has_the_same_name_in_all_programs() {
        let mut page = String::new();
        encode(&mut page, &Metrics::default().registry()).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let line = format!(
            "boathook_build_info{{program=\"boathook-scheduler\",version=\"{version}\"}} 1\n"
        );
        assert!(page.contains(&line), "{page}");
        assert!(page.contains("\nboathook_scheduler_"), "{page}");
    }
}
