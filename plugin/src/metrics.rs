//! The counters of the process.

use std::time::Duration;

use device_class::name::ResourceName;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The upper bounds of the histograms' buckets, in seconds.
const BOUNDS: [f64; 9] = [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

type Label = (&'static str, String);
type Histograms = Family<[Label; 1], Histogram, fn() -> Histogram>;

/// The counters of the process. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    allocations: Family<[Label; 2], Counter>,
    registrations: Family<[Label; 2], Counter>,
    allocation_conflicts: Family<[Label; 1], Counter>,
    allocation_duration: Histograms,
    scan_duration: Histogram,
    class_errors: Gauge,
    cdi_errors: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            allocations: Family::default(),
            registrations: Family::default(),
            allocation_conflicts: Family::default(),
            allocation_duration: Family::new_with_constructor(histogram),
            scan_duration: histogram(),
            class_errors: Gauge::default(),
            cdi_errors: Gauge::default(),
        }
    }
}

fn histogram() -> Histogram {
    Histogram::new(BOUNDS)
}

fn resource_label(resource: &ResourceName) -> Label {
    ("resource", resource.to_string())
}

fn with_result(resource: &ResourceName, result: &str) -> [Label; 2] {
    [resource_label(resource), ("result", result.to_owned())]
}

impl Metrics {
    /// Creates the counters of a resource with the value 0: a rate cannot be
    /// computed from a counter that is created at its first event.
    pub(crate) fn serving(&self, resource: &ResourceName) {
        for result in ["ok", "refused"] {
            let labels = with_result(resource, result);
            drop(self.allocations.get_or_create(&labels));
        }
        for result in ["accepted", "failed"] {
            let labels = with_result(resource, result);
            drop(self.registrations.get_or_create(&labels));
        }
        let label = [resource_label(resource)];
        drop(self.allocation_conflicts.get_or_create(&label));
        drop(
            self.allocation_duration
                .get_or_create(&[resource_label(resource)]),
        );
    }

    pub(crate) fn allocated(&self, resource: &ResourceName, ok: bool, took: Duration) {
        let labels = with_result(resource, if ok { "ok" } else { "refused" });
        self.allocations.get_or_create(&labels).inc();
        let durations = self
            .allocation_duration
            .get_or_create(&[resource_label(resource)]);
        durations.observe(took.as_secs_f64());
    }

    /// Counts a device that was allocated although a pod that the kubelet has forgotten runs with
    /// it.
    pub(crate) fn allocation_conflict(&self, resource: &str) {
        let label = [("resource", resource.to_owned())];
        self.allocation_conflicts.get_or_create(&label).inc();
    }

    pub(crate) fn registered(&self, resource: &ResourceName, accepted: bool) {
        let labels = with_result(resource, if accepted { "accepted" } else { "failed" });
        self.registrations.get_or_create(&labels).inc();
    }

    pub(crate) fn scanned(&self, took: Duration) {
        self.scan_duration.observe(took.as_secs_f64());
    }

    /// Sets the number of CDI specifications and classes that are left out because of an
    /// error.
    pub(crate) fn cdi_errors(&self, count: usize) {
        self.cdi_errors
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of class files, or directories with class files, that cannot be used.
    pub(crate) fn class_errors(&self, count: usize) {
        self.class_errors
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Adds the counters to those that a page shows.
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
