//! The metrics of the process, in the OpenMetrics text format.

mod present;

use std::path::PathBuf;
use std::time::Duration;

use device_class::name::ResourceName;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::catalog::Inventory;
use crate::server::LeftToOthers;
use crate::service::Streams;
use present::Present;

/// The upper bounds of the histograms' buckets, in seconds.
const BOUNDS: [f64; 9] = [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

type Label = (&'static str, String);
type Histograms = Family<[Label; 1], Histogram, fn() -> Histogram>;

/// The counters of the process. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    allocations: Family<[Label; 2], Counter>,
    registrations: Family<[Label; 2], Counter>,
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

fn of(resource: &ResourceName) -> Label {
    ("resource", resource.to_string())
}

fn with_result(resource: &ResourceName, result: &str) -> [Label; 2] {
    [of(resource), ("result", result.to_owned())]
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
        drop(self.allocation_duration.get_or_create(&[of(resource)]));
    }

    pub(crate) fn allocated(&self, resource: &ResourceName, ok: bool, took: Duration) {
        let labels = with_result(resource, if ok { "ok" } else { "refused" });
        self.allocations.get_or_create(&labels).inc();
        let durations = self.allocation_duration.get_or_create(&[of(resource)]);
        durations.observe(took.as_secs_f64());
    }

    pub(crate) fn registered(&self, resource: &ResourceName, accepted: bool) {
        let labels = with_result(resource, if accepted { "accepted" } else { "failed" });
        self.registrations.get_or_create(&labels).inc();
    }

    pub(crate) fn scanned(&self, took: Duration) {
        self.scan_duration.observe(took.as_secs_f64());
    }

    /// How many CDI specifications, or classes, are omitted because of an error.
    pub(crate) fn cdi_errors(&self, count: usize) {
        self.cdi_errors
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many class files, or directories of them, cannot be used.
    pub(crate) fn class_errors(&self, count: usize) {
        self.class_errors
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// The metrics page: the counters and the current state.
#[derive(Debug)]
pub(crate) struct Page(Registry);

impl Page {
    pub(crate) fn new(
        metrics: &Metrics,
        inventory: watch::Receiver<Inventory>,
        (streams, left): (Streams, LeftToOthers),
        record: PathBuf,
    ) -> Self {
        let mut registry = Registry::with_prefix("boathook");
        registry.register_collector(Box::new(Present {
            inventory,
            streams,
            left,
            record,
        }));
        registry.register("allocations", "Allocate calls", metrics.allocations.clone());
        registry.register(
            "registrations",
            "Registrations with the kubelet",
            metrics.registrations.clone(),
        );
        registry.register(
            "allocation_duration_seconds",
            "Time to answer Allocate",
            metrics.allocation_duration.clone(),
        );
        registry.register(
            "scan_duration_seconds",
            "Time of a device scan",
            metrics.scan_duration.clone(),
        );
        registry.register(
            "class_errors",
            "Class files that cannot be used",
            metrics.class_errors.clone(),
        );
        registry.register(
            "cdi_errors",
            "CDI specifications that cannot be written or are left out",
            metrics.cdi_errors.clone(),
        );
        Page(registry)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.0);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::fixture::{device, resource, sick};

    #[test]
    fn the_page_has_every_family_with_its_samples() {
        let npus = Arc::new(resource(vec![device("a"), device("b"), sick("c", "cold")]));
        let name = npus.name.clone();
        let (_sender, inventory) = watch::channel(Inventory::from([(name.clone(), npus)]));
        let (metrics, streams) = (Metrics::default(), Streams::default());
        let directory = tempfile::tempdir().unwrap();
        let record = directory.path().join(injection_plan::record::FILE_NAME);
        std::fs::write(
            &record,
            r#"{"Data":{"PodDeviceEntries":[
                {"PodUID":"u1","ContainerName":"main","ResourceName":"dummy.com/npu","DeviceIDs":{"-1":["a","b"]}},
                {"PodUID":"u1","ContainerName":"side","ResourceName":"dummy.com/npu","DeviceIDs":["c"]},
                {"PodUID":"u2","ContainerName":"main","ResourceName":"other.com/npu","DeviceIDs":["x"]}]}}"#,
        )
        .unwrap();
        let page = Page::new(
            &metrics,
            inventory,
            (streams.clone(), LeftToOthers::default()),
            record,
        );
        metrics.serving(&name);
        metrics.allocated(&name, true, Duration::from_micros(300));
        metrics.allocated(&name, false, Duration::from_secs(100));
        let _open = streams.of(name).enter();
        let page = page.text();
        for line in [
            "# TYPE boathook_devices gauge",
            r#"boathook_devices{resource="dummy.com/npu",health="healthy"} 2"#,
            r#"boathook_devices{resource="dummy.com/npu",health="unhealthy"} 1"#,
            r#"boathook_allocations_total{resource="dummy.com/npu",result="refused"} 1"#,
            r#"boathook_registrations_total{resource="dummy.com/npu",result="failed"} 0"#,
            r#"boathook_streams{resource="dummy.com/npu"} 1"#,
            r#"boathook_left_to_other_plugin{resource="dummy.com/npu"} 0"#,
            r#"boathook_allocated_devices{resource="dummy.com/npu",pod_uid="u1",container="main"} 2"#,
            r#"boathook_allocated_devices{resource="dummy.com/npu",pod_uid="u1",container="side"} 1"#,
            r#"boathook_allocation_duration_seconds_bucket{le="0.00025",resource="dummy.com/npu"} 0"#,
            r#"boathook_allocation_duration_seconds_bucket{le="0.0005",resource="dummy.com/npu"} 1"#,
            r#"boathook_allocation_duration_seconds_bucket{le="+Inf",resource="dummy.com/npu"} 2"#,
            r#"boathook_allocation_duration_seconds_count{resource="dummy.com/npu"} 2"#,
            r#"boathook_scan_duration_seconds_bucket{le="+Inf"} 0"#,
            "boathook_class_errors 0",
            "boathook_tasks 0",
        ] {
            assert!(
                page.lines().any(|written| written == line),
                "{line}\n{page}"
            );
        }
        assert!(!page.contains("other.com"), "{page}");
    }

    #[test]
    fn dashboard_and_alerts_use_only_families_that_exist() {
        let (_sender, inventory) = watch::channel(Inventory::new());
        let metrics = Metrics::default();
        // A family without samples is not written.
        metrics.serving(&resource(vec![]).name);
        let page = Page::new(&metrics, inventory, Default::default(), "/nowhere".into()).text();
        let families: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let queries = concat!(
            include_str!("../../deploy/monitoring/grafana-dashboard.json"),
            include_str!("../../deploy/monitoring/prometheus-rules.yaml"),
        );
        let words = queries.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<&str> = words.filter(|word| word.starts_with("boathook_")).collect();
        assert!(names.len() > 10);
        for name in names {
            let suffixes = ["_bucket", "_sum", "_count", "_total"];
            let family = suffixes
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .unwrap_or(name);
            assert!(families.contains(&family), "{name}");
        }
    }
}
