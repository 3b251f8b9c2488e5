//! Answers HTTP requests for the metrics (`/metrics`) and for the probes of the pod (`/healthz` and
//! `/readyz`).

mod allocated_devices;
mod current_state;
mod host_versions;
mod metrics_page;

use daemon::http_server::{Answer, Handler, Method, answer_probe};

pub(crate) use allocated_devices::AllocatedDevices;
pub(crate) use current_state::StateSources;
pub(crate) use host_versions::HostVersions;
pub(crate) use metrics_page::MetricsPage;

#[derive(Debug)]
pub(crate) struct Pages {
    /// The page `/metrics`. `None` means that only `/healthz` and `/readyz` are served.
    pub(crate) metrics_page: Option<MetricsPage>,
    pub(crate) state: StateSources,
}

impl Handler for Pages {
    async fn answer(&self, method: &Method, path: &str, _: &[u8]) -> Answer {
        let (path, metrics_text) = match (path, &self.metrics_page) {
            ("/metrics", Some(page)) => (path, page.render_text().await),
            ("/metrics", None) => ("", String::new()),
            _ => (path, String::new()),
        };
        answer_probe(
            method,
            path,
            || metrics_text,
            || self.state.check_readiness(),
        )
    }
}
