//! `/metrics`, `/healthz` and `/readyz`.

mod metrics_page;
mod present;

use http_server::{Answer, Limits, Method, probe};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::catalog::Resources;
use crate::server::LeftToOthers;
use crate::service::Streams;

pub(crate) use metrics_page::MetricsPage;

/// The data of the pages.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) metrics: MetricsPage,
    pub(crate) inventory: watch::Receiver<Resources>,
    pub(crate) streams: Streams,
    pub(crate) left: LeftToOthers,
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) {
    let answer = move |method: &Method, path: &str, _: &[u8]| pages.page(method, path);
    http_server::serve(listener, Limits::PAGES, answer).await;
}

impl Pages {
    fn page(&self, method: &Method, path: &str) -> Answer {
        probe(method, path, || self.metrics.text(), || self.readiness())
    }

    /// Ready: the kubelet watches every resource that is not left to another plugin.
    fn readiness(&self) -> Result<String, String> {
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
