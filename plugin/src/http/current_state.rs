//! Reads the current state of the plugin at the time of a request, for metrics and probes.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;
use tokio::sync::watch;

use host_inventory::ScanProgress;

use super::allocated_devices::AllocatedDevices;
use crate::catalog::Resources;
use crate::server::YieldedResources;
use crate::service::Streams;

/// The sources of the current state.
#[derive(Debug, Clone)]
pub(crate) struct CurrentState {
    pub(crate) inventory: watch::Receiver<Resources>,
    pub(crate) streams: Streams,
    pub(crate) yielded: YieldedResources,
    pub(crate) scans: ScanProgress,
    pub(crate) allocated: AllocatedDevices,
}

impl CurrentState {
    /// Returns whether the plugin is ready: it is if the kubelet has a ListAndWatch stream for
    /// every resource that is not left to another plugin.
    pub(super) fn readiness(&self) -> Result<String, String> {
        if !self.scans.has_ended() {
            return Err("the first device scan has not ended".to_owned());
        }
        let mut missing = self.streams.find_unstreamed(&self.inventory.borrow());
        missing.retain(|name| !self.yielded.contains(name));
        if missing.is_empty() {
            return Ok(match self.yielded.names().join(", ") {
                names if names.is_empty() => "ok".to_owned(),
                names => format!("ok; left to another plugin: {names}"),
            });
        }
        let names: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
        let names = names.join(", ");
        Err(format!("no kubelet has a ListAndWatch stream for {names}"))
    }
}

impl Collector for CurrentState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let inventory = self.inventory.borrow().clone();
        let gauge = MetricType::Gauge;
        let mut devices =
            encoder.encode_descriptor("devices", "Advertised devices.", None, gauge)?;
        for (name, resource) in &inventory {
            let all = resource.devices();
            let healthy = all.iter().filter(|device| device.is_healthy()).count();
            for (health, count) in [("healthy", healthy), ("unhealthy", all.len() - healthy)] {
                let labels = [("resource", name.as_str()), ("health", health)];
                int_gauge(count).encode(devices.encode_family(&labels)?)?;
            }
        }
        let mut streams =
            encoder.encode_descriptor("streams", "Open ListAndWatch streams.", None, gauge)?;
        for name in inventory.keys() {
            let labels = [("resource", name.as_str())];
            int_gauge(self.streams.count_open(name)).encode(streams.encode_family(&labels)?)?;
        }
        let help = "Whether the resource is left to another plugin, which serves it.";
        let mut left = encoder.encode_descriptor("left_to_other_plugin", help, None, gauge)?;
        for name in inventory.keys() {
            let labels = [("resource", name.as_str())];
            let is_left = usize::from(self.yielded.contains(name));
            int_gauge(is_left).encode(left.encode_family(&labels)?)?;
        }
        let help = "Devices, or shares, that the kubelet has allocated.";
        let mut allocated = encoder.encode_descriptor("allocated_devices", help, None, gauge)?;
        for (labels, count) in self.allocated.count(&inventory) {
            int_gauge(count).encode(allocated.encode_family(&labels)?)?;
        }
        let help = "How long the present device scan has been running: minutes if a driver hangs.";
        let running = encoder.encode_descriptor("scan_running_seconds", help, None, gauge)?;
        ConstGauge::new(self.scans.running().as_secs_f64()).encode(running)?;
        let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        let family = encoder.encode_descriptor("tasks", "Asynchronous tasks.", None, gauge)?;
        int_gauge(tasks).encode(family)
    }
}

fn int_gauge(count: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX))
}
