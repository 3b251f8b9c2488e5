//! `/healthz`, `/readyz` and `/metrics`.

use http_server::{Limits, Method, probe};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Serves the pages until the future is dropped. Without a registry only the probes are
/// served. The process is ready when the kubelet has registered the driver.
pub(crate) async fn serve(
    listener: Option<TcpListener>,
    registry: Option<Registry>,
    registered: watch::Receiver<bool>,
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
    let ready = move || match *registered.borrow() {
        true => Ok("ok".to_owned()),
        false => Err("the kubelet has not registered the driver".to_owned()),
    };
    let pages = move |method: &Method, path: &str, _: &[u8]| {
        let is_there = path != "/metrics" || has_metrics;
        probe(method, if is_there { path } else { "" }, &metrics, &ready)
    };
    http_server::serve(listener, Limits::PAGES, pages).await;
}
