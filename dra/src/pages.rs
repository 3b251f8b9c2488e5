//! Serves the HTTP pages `/healthz`, `/readyz` and `/metrics`.

use http_server::{Limits, Method, answer_probe};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::inventory::FirstScan;

/// Decides whether the process is ready: it is, once the first scan has ended and the kubelet has
/// registered the driver.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    pub(crate) is_registered: watch::Receiver<bool>,
    pub(crate) first_scan: FirstScan,
}

impl Readiness {
    fn check(&self) -> Result<String, String> {
        if !self.first_scan.has_ended() {
            return Err("the first scan of the devices has not ended".to_owned());
        }
        if !*self.is_registered.borrow() {
            return Err("the kubelet has not registered the driver".to_owned());
        }
        Ok("ok".to_owned())
    }
}

/// Serves the pages until the future is dropped. Without a registry, only the probes are served.
pub(crate) async fn serve(
    listener: Option<TcpListener>,
    registry: Option<Registry>,
    readiness: Readiness,
) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let has_metrics = registry.is_some();
    let metrics = move || {
        let mut page = String::new();
        if let Some(registry) = &registry {
            // Writing to a string cannot fail.
            let _ = encode(&mut page, registry);
        }
        page
    };
    let ready = move || readiness.check();
    let pages = move |method: &Method, path: &str, _: &[u8]| {
        let is_there = path != "/metrics" || has_metrics;
        answer_probe(method, if is_there { path } else { "" }, &metrics, &ready)
    };
    http_server::serve(listener, Limits::PAGES, pages).await;
}
