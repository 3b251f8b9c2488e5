//! The webhook's metrics, which the page `/metrics` shows.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::watch::Label;

/// The metrics that the webhook updates at each review and event. All clones share the same values.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// The number of admission reviews, by result: `mapped`, `unchanged`, `denied` or `invalid`.
    pub reviews: Family<[Label; 1], Counter>,
    /// The number of friendly names in all namespaces.
    pub friendly_name_count: Gauge,
    /// The number of watch failures, by kind of object.
    pub watch_errors: Family<[Label; 1], Counter>,
}

impl Metrics {
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        let version = env!("CARGO_PKG_VERSION");
        registry.register(
            "boathook_build",
            "The program and its version",
            Info::new([("program", "boathook-webhook"), ("version", version)]),
        );
        let program_metrics = registry.sub_registry_with_prefix("boathook_webhook");
        program_metrics.register("reviews", "Reviews of pods", self.reviews.clone());
        program_metrics.register(
            "known_names",
            "Names of AcceleratorFunctions and FpgaRegions",
            self.friendly_name_count.clone(),
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
            "boathook_build_info{{program=\"boathook-webhook\",version=\"{version}\"}} 1\n"
        );
        assert!(page.contains(&line), "{page}");
        assert!(page.contains("\nboathook_webhook_"), "{page}");
    }
}
