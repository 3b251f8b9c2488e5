//! Serves `/metrics` in the OpenMetrics text format.

use std::sync::Arc;

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;

use super::allocated_devices::AllocatedDevices;
use super::current_state::StateSources;
use crate::metrics::Metrics;

/// The page `/metrics`: the counters of the plugin, and the values that are read at each request.
#[derive(Debug)]
pub(crate) struct MetricsPage {
    registry: Arc<Mutex<Registry>>,
    allocated_devices: AllocatedDevices,
}

impl MetricsPage {
    pub(crate) fn new(metrics: &Metrics, state: StateSources) -> Self {
        let mut registry = Registry::with_prefix("boathook");
        let allocated_devices = state.allocated_devices.clone();
        registry.register_collector(Box::new(state));
        let version = env!("CARGO_PKG_VERSION");
        registry.register(
            "build",
            "The program and its version",
            Info::new([("program", "boathook-plugin"), ("version", version)]),
        );
        metrics.register(&mut registry);
        MetricsPage {
            registry: Arc::new(Mutex::new(registry)),
            allocated_devices,
        }
    }

    /// Returns the text of the page. First asks the kubelet for the allocated devices, which takes
    /// at most 2 s. If the kubelet does not answer, reads its checkpoint, a file of up to some
    /// megabytes. The page is built on a separate thread, for one client at a time. Therefore at
    /// most one thread hangs if reading hangs.
    pub(crate) async fn render_text(&self) -> String {
        let registry = Arc::clone(&self.registry).lock_owned().await;
        self.allocated_devices.refresh_listed_pods().await;
        let page = tokio::task::spawn_blocking(move || encode_metrics(&registry));
        page.await.unwrap_or_default()
    }
}

fn encode_metrics(registry: &Registry) -> String {
    let mut text = String::new();
    // The result is ignored, because writing to a string cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use daemon::host_inventory::ScanProgress;
    use tokio::sync::watch;

    use super::super::host_versions::HostVersions;
    use super::*;
    use crate::catalog::Resources;
    use crate::catalog::fixture::{device, resource, unhealthy_device};
    use crate::pod_cgroups::PodCgroups;
    use crate::server::YieldedResources;
    use crate::service::OpenStreamCounts;

    fn state(
        resources: Resources,
        streams: &OpenStreamCounts,
        checkpoint: PathBuf,
    ) -> StateSources {
        let cgroups = PodCgroups::new(Path::new("/nowhere"));
        let allocated = AllocatedDevices::new("/nowhere".into(), checkpoint, cgroups);
        let hook = Path::new("/opt/boathook/current/bin/boathook-hook");
        StateSources {
            inventory: watch::channel(resources).1,
            streams: streams.clone(),
            yielded_resources: YieldedResources::default(),
            scan_progress: ScanProgress::default(),
            allocated_devices: allocated,
            host_versions: HostVersions::new(Path::new("/nowhere"), hook),
        }
    }

    #[test]
    fn the_page_has_every_family_with_its_samples() {
        let npus = Arc::new(resource(vec![
            device("a"),
            device("b"),
            unhealthy_device("c", "cold"),
        ]));
        let name = npus.name.clone();
        let resources = Resources::from([(name.clone(), npus)]);
        let (metrics, streams) = (Metrics::default(), OpenStreamCounts::default());
        let directory = tempfile::tempdir().unwrap();
        let record = directory
            .path()
            .join(injection_plan::kubelet_checkpoint::FILE_NAME);
        std::fs::write(
            &record,
            r#"{"Data":{"PodDeviceEntries":[
                {"PodUID":"u1","ContainerName":"main","ResourceName":"dummy.com/npu","DeviceIDs":{"-1":["a","b"]}},
                {"PodUID":"u1","ContainerName":"side","ResourceName":"dummy.com/npu","DeviceIDs":["c"]},
                {"PodUID":"u2","ContainerName":"main","ResourceName":"other.com/npu","DeviceIDs":["x"]}]}}"#,
        )
        .unwrap();
        let page = MetricsPage::new(&metrics, state(resources, &streams, record));
        metrics.create_counters(&name);
        metrics.count_allocation(&name, true, Duration::from_micros(300));
        metrics.count_allocation(&name, false, Duration::from_secs(100));
        let _open = streams.create_stream_count(name).count_stream();
        let page = encode_metrics(&page.registry.blocking_lock());
        for line in [
            "# TYPE boathook_devices gauge",
            r#"boathook_devices{resource="dummy.com/npu",health="healthy"} 2"#,
            r#"boathook_devices{resource="dummy.com/npu",health="unhealthy"} 1"#,
            r#"boathook_allocations_total{resource="dummy.com/npu",result="refused"} 1"#,
            concat!(
                r#"boathook_build_info{program="boathook-plugin",version=""#,
                env!("CARGO_PKG_VERSION"),
                r#""} 1"#
            ),
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
            "boathook_scan_running_seconds 0.0",
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
        let metrics = Metrics::default();
        // A family without samples is not written.
        metrics.create_counters(&resource(vec![]).name);
        let none = state(
            Resources::new(),
            &OpenStreamCounts::default(),
            "/nowhere".into(),
        );
        let page = MetricsPage::new(&metrics, none);
        let page = encode_metrics(&page.registry.blocking_lock());
        let families: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let queries = concat!(
            include_str!("../../../deploy/monitoring/grafana-dashboard.json"),
            include_str!("../../../deploy/helm/prometheus-rules.yaml"),
        );
        let words = queries.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<&str> = words.filter(|word| word.starts_with("boathook_")).collect();
        assert!(names.len() > 10);
        for name in names {
            let suffixes = ["_bucket", "_sum", "_count", "_total"];
            let family = suffixes.iter().find_map(|end| name.strip_suffix(end));
            assert!(families.contains(&family.unwrap_or(name)), "{name}");
        }
    }
}
