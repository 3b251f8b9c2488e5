//! `/metrics`, `/healthz` and `/readyz`.

mod metrics_page;
mod present;

use http_server::{Answer, Limits, Method, Site, probe};
use tokio::net::TcpListener;
use tokio::sync::watch;

use host_inventory::ScanProgress;

use crate::catalog::Resources;
use crate::server::LeftToOthers;
use crate::service::Streams;

pub(crate) use metrics_page::MetricsPage;

#[derive(Debug)]
pub(crate) struct Pages {
    /// `None`: only the probes are served.
    pub(crate) metrics: Option<MetricsPage>,
    pub(crate) inventory: watch::Receiver<Resources>,
    pub(crate) streams: Streams,
    pub(crate) left: LeftToOthers,
    pub(crate) scans: ScanProgress,
}

pub(crate) async fn serve(listener: TcpListener, pages: Pages) {
    http_server::serve(listener, Limits::PAGES, pages).await;
}

impl Site for Pages {
    async fn answer(&self, method: &Method, path: &str, _: &[u8]) -> Answer {
        let (path, metrics) = match (path, &self.metrics) {
            ("/metrics", Some(page)) => (path, page.text().await),
            ("/metrics", None) => ("", String::new()),
            _ => (path, String::new()),
        };
        probe(method, path, || metrics, || self.readiness())
    }
}

impl Pages {
    /// Ready: the kubelet watches every resource that is not left to another plugin.
    fn readiness(&self) -> Result<String, String> {
        if !self.scans.has_ended() {
            return Err("the first device scan has not ended".to_owned());
        }
        let mut missing = self.streams.missing(&self.inventory.borrow());
        missing.retain(|name| !self.left.contains(name));
        if missing.is_empty() {
            return Ok(match self.left.names().join(", ") {
                names if names.is_empty() => "ok".to_owned(),
                names => format!("ok; left to another plugin: {names}"),
            });
        }
        let names: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
        let names = names.join(", ");
        Err(format!("no kubelet has a ListAndWatch stream for {names}"))
    }
}
