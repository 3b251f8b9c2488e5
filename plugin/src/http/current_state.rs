//! Reads the state of the plugin when metrics or a probe are requested.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;
use tokio::sync::watch;

use daemon::host_inventory::ScanProgress;

use super::allocated_devices::AllocatedDevices;
use super::host_versions::HostVersions;
use crate::catalog::Resources;
use crate::server::YieldedResources;
use crate::service::OpenStreamCounts;

/// The values from which `/metrics` and `/readyz` are answered. They are read at each request.
#[derive(Debug, Clone)]
pub(crate) struct StateSources {
    pub(crate) inventory: watch::Receiver<Resources>,
    pub(crate) streams: OpenStreamCounts,
    pub(crate) yielded_resources: YieldedResources,
    pub(crate) scan_progress: ScanProgress,
    pub(crate) allocated_devices: AllocatedDevices,
    pub(crate) host_versions: HostVersions,
}

impl StateSources {
    /// Returns a message for the probe `/readyz`, as an error if the plugin is not ready. The
    /// plugin is ready if the kubelet has a ListAndWatch stream for every resource that is not left
    /// to another plugin.
    pub(crate) fn check_readiness(&self) -> Result<String, String> {
        if !self.scan_progress.has_ended() {
            return Err("the first device scan has not ended".to_owned());
        }
        let mut resources_without_stream = self
            .streams
            .find_resources_without_stream(&self.inventory.borrow());
        resources_without_stream.retain(|name| !self.yielded_resources.contains(name));
        if resources_without_stream.is_empty() {
            return Ok(match self.yielded_resources.resource_names().join(", ") {
                names if names.is_empty() => "ok".to_owned(),
                names => format!("ok; left to another plugin: {names}"),
            });
        }
        let names: Vec<&str> = resources_without_stream
            .iter()
            .map(|name| name.as_str())
            .collect();
        let names = names.join(", ");
        Err(format!("no kubelet has a ListAndWatch stream for {names}"))
    }
}

impl Collector for StateSources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let inventory = self.inventory.borrow().clone();
        let gauge = MetricType::Gauge;
        let mut devices =
            encoder.encode_descriptor("devices", "Advertised devices.", None, gauge)?;
        for (name, resource) in &inventory {
            let all_devices = resource.devices();
            let healthy = all_devices
                .iter()
                .filter(|device| device.is_healthy())
                .count();
            for (health, count) in [
                ("healthy", healthy),
                ("unhealthy", all_devices.len() - healthy),
            ] {
                let labels = [("resource", name.as_str()), ("health", health)];
                int_gauge(count).encode(devices.encode_family(&labels)?)?;
            }
        }
        let mut streams =
            encoder.encode_descriptor("streams", "Open ListAndWatch streams.", None, gauge)?;
        for name in inventory.keys() {
            let labels = [("resource", name.as_str())];
            int_gauge(self.streams.count_open_streams(name))
                .encode(streams.encode_family(&labels)?)?;
        }
        let help = "Whether the resource is left to another plugin, which serves it.";
        let mut left_resources =
            encoder.encode_descriptor("left_to_other_plugin", help, None, gauge)?;
        for name in inventory.keys() {
            let labels = [("resource", name.as_str())];
            let is_left = usize::from(self.yielded_resources.contains(name));
            int_gauge(is_left).encode(left_resources.encode_family(&labels)?)?;
        }
        let help = "Versions of the plugin, of what engines call, and of the package.";
        let mut versions = encoder.encode_descriptor("versions", help, None, gauge)?;
        for (place, version) in self.host_versions.read() {
            let labels = [("place", place), ("version", &*version)];
            int_gauge(1).encode(versions.encode_family(&labels)?)?;
        }
        let help = "Devices, or shares, that the kubelet has allocated.";
        let mut allocated_family =
            encoder.encode_descriptor("allocated_devices", help, None, gauge)?;
        for (labels, count) in self.allocated_devices.count_devices(&inventory) {
            int_gauge(count).encode(allocated_family.encode_family(&labels)?)?;
        }
        let help = "How long the present device scan has been running: minutes if a driver hangs.";
        let running_family =
            encoder.encode_descriptor("scan_running_seconds", help, None, gauge)?;
        ConstGauge::new(self.scan_progress.running_time().as_secs_f64()).encode(running_family)?;
        let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        let family = encoder.encode_descriptor("tasks", "Asynchronous tasks.", None, gauge)?;
        int_gauge(tasks).encode(family)
    }
}

fn int_gauge(count: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX))
}
