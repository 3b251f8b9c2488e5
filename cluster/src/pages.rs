//! `/healthz`, `/readyz` and `/metrics`.

use http_server::{Limits, Method, probe};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// Serves the pages of a process until it is dropped. `waits_for` is why it is not ready;
/// `None` if it is.
pub async fn serve(
    listener: TcpListener,
    registry: Registry,
    waits_for: impl Fn() -> Option<&'static str> + Send + Sync + 'static,
) {
    let metrics = move || {
        let mut page = String::new();
        // Writing to a text cannot fail.
        let _ = encode(&mut page, &registry);
        page
    };
    let ready = move || waits_for().map_or(Ok("ok".to_owned()), |reason| Err(reason.to_owned()));
    let pages = move |method: &Method, path: &str, _: &[u8]| probe(method, path, &metrics, &ready);
    http_server::serve(listener, Limits::PAGES, pages).await;
}
