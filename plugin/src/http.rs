//! `/metrics`, `/healthz` and `/readyz`.

mod allocated_devices;
mod metrics_page;
mod present;

use http_server::{Answer, Method, Site, probe};

pub(crate) use allocated_devices::AllocatedDevices;
pub(crate) use metrics_page::MetricsPage;
pub(crate) use present::Present;

#[derive(Debug)]
pub(crate) struct Pages {
    /// The page of metrics. `None` means that only the probes are served.
    pub(crate) metrics: Option<MetricsPage>,
    pub(crate) present: Present,
}

impl Site for Pages {
    async fn answer(&self, method: &Method, path: &str, _: &[u8]) -> Answer {
        let (path, metrics) = match (path, &self.metrics) {
            ("/metrics", Some(page)) => (path, page.text().await),
            ("/metrics", None) => ("", String::new()),
            _ => (path, String::new()),
        };
        probe(method, path, || metrics, || self.present.readiness())
    }
}
