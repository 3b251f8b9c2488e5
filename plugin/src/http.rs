//! Answers the HTTP requests for `/metrics`, `/healthz` and `/readyz`.

mod allocated_devices;
mod current_state;
mod metrics_page;

use http_server::{Answer, Handler, Method, answer_probe};

pub(crate) use allocated_devices::AllocatedDevices;
pub(crate) use current_state::CurrentState;
pub(crate) use metrics_page::MetricsPage;

#[derive(Debug)]
pub(crate) struct Pages {
    /// The page `/metrics`. `None` means that only the probes are served.
    pub(crate) metrics: Option<MetricsPage>,
    pub(crate) state: CurrentState,
}

impl Handler for Pages {
    async fn answer(&self, method: &Method, path: &str, _: &[u8]) -> Answer {
        let (path, metrics) = match (path, &self.metrics) {
            ("/metrics", Some(page)) => (path, page.text().await),
            ("/metrics", None) => ("", String::new()),
            _ => (path, String::new()),
        };
        answer_probe(method, path, || metrics, || self.state.readiness())
    }
}
