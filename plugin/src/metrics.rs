//! The metrics that the plugin updates at each event: counters, gauges and histograms. The page
//! `/metrics` shows them.

use std::time::Duration;

use device_class::name::ResourceName;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The upper bounds of the buckets of all histograms, in seconds.
const BUCKET_BOUNDS_SECONDS: [f64; 9] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

type Label = (&'static str, String);
type Histograms = Family<[Label; 1], Histogram, fn() -> Histogram>;

/// The metrics that the plugin updates at each event. All clones share the same values.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    allocations: Family<[Label; 2], Counter>,
    registrations: Family<[Label; 2], Counter>,
    allocation_conflicts: Family<[Label; 1], Counter>,
    allocation_duration: Histograms,
    scan_duration: Histogram,
    class_errors: Gauge,
    cdi_errors: Gauge,
    unreadable_logs: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            allocations: Family::default(),
            registrations: Family::default(),
            allocation_conflicts: Family::default(),
            allocation_duration: Family::new_with_constructor(new_histogram),
            scan_duration: new_histogram(),
            class_errors: Gauge::default(),
            cdi_errors: Gauge::default(),
            unreadable_logs: Gauge::default(),
        }
    }
}

fn new_histogram() -> Histogram {
    Histogram::new(BUCKET_BOUNDS_SECONDS)
}

fn resource_label(resource: &ResourceName) -> Label {
    ("resource", resource.to_string())
}

fn result_labels(resource: &ResourceName, result: &str) -> [Label; 2] {
    [resource_label(resource), ("result", result.to_owned())]
}

impl Metrics {
    /// Creates the counters of a resource with the value 0. Otherwise the increase at the first
    /// event would not be visible, because a counter would appear with the value 1.
    pub(crate) fn create_counters(&self, resource: &ResourceName) {
        for result in ["ok", "refused"] {
            let labels = result_labels(resource, result);
            drop(self.allocations.get_or_create(&labels));
        }
        for result in ["accepted", "failed"] {
            let labels = result_labels(resource, result);
            drop(self.registrations.get_or_create(&labels));
        }
        let label = [resource_label(resource)];
        drop(self.allocation_conflicts.get_or_create(&label));
        drop(
            self.allocation_duration
                .get_or_create(&[resource_label(resource)]),
        );
    }

    pub(crate) fn count_allocation(
        &self,
        resource: &ResourceName,
        is_allowed: bool,
        duration: Duration,
    ) {
        let labels = result_labels(resource, if is_allowed { "ok" } else { "refused" });
        self.allocations.get_or_create(&labels).inc();
        let durations = self
            .allocation_duration
            .get_or_create(&[resource_label(resource)]);
        durations.observe(duration.as_secs_f64());
    }

    /// Counts an allocation of a device that a running pod still uses, although the kubelet's
    /// checkpoint no longer lists that pod.
    pub(crate) fn count_allocation_conflict(&self, resource: &str) {
        let label = [("resource", resource.to_owned())];
        self.allocation_conflicts.get_or_create(&label).inc();
    }

    pub(crate) fn count_registration(&self, resource: &ResourceName, is_accepted: bool) {
        let labels = result_labels(resource, if is_accepted { "accepted" } else { "failed" });
        self.registrations.get_or_create(&labels).inc();
    }

    pub(crate) fn observe_scan(&self, duration: Duration) {
        self.scan_duration.observe(duration.as_secs_f64());
    }

    /// Sets the number of errors because of which a device has no current CDI specification.
    pub(crate) fn set_cdi_errors(&self, count: usize) {
        self.cdi_errors
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of class files or directories that cannot be used.
    pub(crate) fn set_class_errors(&self, count: usize) {
        self.class_errors
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of classes whose health checks search the kernel's log although this process
    /// cannot read that log.
    pub(crate) fn set_unreadable_logs(&self, count: usize) {
        self.unreadable_logs
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Adds the metrics to a registry, with their names and help texts.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("allocations", "Allocate calls", self.allocations.clone());
        registry.register(
            "registrations",
            "Registrations with the kubelet",
            self.registrations.clone(),
        );
        registry.register(
            "allocation_conflicts",
            "Allocated devices with which a pod runs that the kubelet has no record of any more",
            self.allocation_conflicts.clone(),
        );
        registry.register(
            "allocation_duration_seconds",
            "Time to answer Allocate",
            self.allocation_duration.clone(),
        );
        registry.register(
            "scan_duration_seconds",
            "Time of a device scan",
            self.scan_duration.clone(),
        );
        registry.register(
            "kernel_log_unreadable",
            "Classes whose devices' faults are in the kernel's log, which cannot be read",
            self.unreadable_logs.clone(),
        );
        registry.register(
            "class_errors",
            "Class files that cannot be used",
            self.class_errors.clone(),
        );
        registry.register(
            "cdi_errors",
            "CDI specifications that cannot be written or are left out",
            self.cdi_errors.clone(),
        );
    }
}
