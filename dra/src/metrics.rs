//! The counters, gauges and histograms of the driver, which the page `/metrics` shows.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The upper bounds, in seconds, of the buckets of the histogram of claim preparations.
const BUCKET_BOUNDS_SECONDS: [f64; 8] = [0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 10.0];

type Label = [(&'static str, String); 1];

/// The metrics that the driver updates at each event. All clones share the same values.
#[derive(Debug, Clone)]
pub struct Metrics {
    claim_calls: Family<[(&'static str, &'static str); 2], Counter>,
    prepare_duration: Histogram,
    slice_writes: Counter,
    devices: Family<Label, Gauge>,
    unhealthy_devices: Family<Label, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            claim_calls: Family::default(),
            prepare_duration: Histogram::new(BUCKET_BOUNDS_SECONDS),
            slice_writes: Counter::default(),
            devices: Family::default(),
            unhealthy_devices: Family::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn observe_prepare(&self, is_ok: bool, duration: Duration) {
        self.count_call("prepare", is_ok);
        self.prepare_duration.observe(duration.as_secs_f64());
    }

    pub(crate) fn count_call(&self, call: &'static str, is_ok: bool) {
        let result = if is_ok { "ok" } else { "failed" };
        let labels = [("call", call), ("result", result)];
        self.claim_calls.get_or_create(&labels).inc();
    }

    pub(crate) fn count_slice_write(&self) {
        self.slice_writes.inc();
    }

    /// Sets the metrics of a pool: the number of its devices, and how many of them are unhealthy.
    pub(crate) fn set_devices(&self, pool: &str, device_count: usize, unhealthy_count: usize) {
        let to_gauge_value = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let label = [("pool", pool.to_owned())];
        self.devices
            .get_or_create(&label)
            .set(to_gauge_value(device_count));
        self.unhealthy_devices
            .get_or_create(&label)
            .set(to_gauge_value(unhealthy_count));
    }

    /// Removes the device counts of all pools, so that a pool that no longer exists has no count.
    pub(crate) fn clear_devices(&self) {
        self.devices.clear();
        self.unhealthy_devices.clear();
    }

    /// Builds the registry whose metrics the page `/metrics` shows.
    pub(crate) fn build_registry(&self) -> Registry {
        let mut registry = Registry::default();
        let version = env!("CARGO_PKG_VERSION");
        registry.register(
            "boathook_build",
            "The program and its version",
            Info::new([("program", "boathook-dra"), ("version", version)]),
        );
        let driver_metrics = registry.sub_registry_with_prefix("boathook_dra");
        driver_metrics.register(
            "claims",
            "Claims of the kubelet's calls",
            self.claim_calls.clone(),
        );
        driver_metrics.register(
            "prepare_duration_seconds",
            "Time to prepare a claim, with the API server's answer",
            self.prepare_duration.clone(),
        );
        driver_metrics.register(
            "slice_writes",
            "Resource slices created or replaced",
            self.slice_writes.clone(),
        );
        driver_metrics.register(
            "devices",
            "Devices in resource slices",
            self.devices.clone(),
        );
        driver_metrics.register(
            "unhealthy_devices",
            "Those of them that have the taint",
            self.unhealthy_devices.clone(),
        );
        registry
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_version_has_the_name_that_all_programs_use() {
        let mut page = String::new();
        encode(&mut page, &Metrics::default().build_registry()).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let line =
            format!("boathook_build_info{{program=\"boathook-dra\",version=\"{version}\"}} 1\n");
        assert!(page.contains(&line), "{page}");
        assert!(page.contains("\nboathook_dra_"), "{page}");
    }
}
