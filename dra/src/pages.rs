//! Serves the HTTP pages `/healthz`, `/readyz` and `/metrics`.

use daemon::http_server;
use daemon::http_server::{Limits, Method, answer_probe};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::inventory::FirstScan;

/// Decides whether the process is ready. It is ready if the first scan has ended and the kubelet
/// has registered the driver.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    pub(crate) registration_state: watch::Receiver<bool>,
    pub(crate) first_scan: FirstScan,
}

impl Readiness {
    fn check_readiness(&self) -> Result<String, String> {
        if !self.first_scan.has_ended() {
            return Err("the first scan of the devices has not ended".to_owned());
        }
        if !*self.registration_state.borrow() {
            return Err("the kubelet has not registered the driver".to_owned());
        }
        Ok("ok".to_owned())
    }
}

/// Serves the pages until the future is dropped. If `registry` is `None`, serves only `/healthz`
/// and `/readyz`.
pub(crate) async fn serve(
    listener: Option<TcpListener>,
    registry: Option<Registry>,
    readiness: Readiness,
) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let has_metrics = registry.is_some();
    let render_metrics = move || {
        let mut page = String::new();
        if let Some(registry) = &registry {
            // The result is ignored, because writing to a string cannot fail.
            let _ = encode(&mut page, registry);
        }
        page
    };
    let check_readiness = move || readiness.check_readiness();
    let answer_request = move |method: &Method, path: &str, _: &[u8]| {
        let is_served = path != "/metrics" || has_metrics;
        answer_probe(
            method,
            if is_served { path } else { "" },
            &render_metrics,
            &check_readiness,
        )
    };
    http_server::serve(listener, Limits::PAGE_SERVER, answer_request).await;
}
